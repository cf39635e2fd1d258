"""ResNet-18 and MobileNet-v1 with seeded random weights as ONNX models, batch normalizations folded into convolutions.

Needs NumPy and onnx alone, so that tests build them too. `width` scales the channels, `size` is that of the image."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SEED = 20240


class Network:
    """Nodes and weights, one layer after the other."""

    def __init__(self, seed=SEED):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def conv(self, x, channels, outputs, kernel, stride=1, groups=1, relu=True, name=""):
        terms = channels // groups * kernel * kernel
        w = self.random.standard_normal((outputs, channels // groups, kernel, kernel)) * np.sqrt((2 if relu else 1) / terms)
        y = f"{name}_out"
        inputs = [x, self.weight(f"{name}.weight", w), self.weight(f"{name}.bias", self.random.standard_normal(outputs) * 0.1)]
        self.nodes.append(helper.make_node("Conv", inputs, [y], name, kernel_shape=[kernel, kernel], strides=[stride, stride],
                                           pads=[kernel // 2] * 4, group=groups))
        return self.op("Relu", [y], f"{name}_relu") if relu else y

    def op(self, kind, inputs, name, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def classifier(self, x, channels, classes):
        x = self.op("Flatten", [self.op("GlobalAveragePool", [x], "pool")], "flatten")
        w = self.weight("classifier.weight", self.random.standard_normal((classes, channels)) / np.sqrt(channels))
        b = self.weight("classifier.bias", self.random.standard_normal(classes) * 0.1)
        self.nodes.append(helper.make_node("Gemm", [x, w, b], ["scores"], "classifier", transB=1))

    def model(self, name, size, classes):
        graph = helper.make_graph(self.nodes, name, [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
                                  [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, classes])], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def resnet18(size=224, width=1.0, classes=1000):
    net, channels = Network(), [max(1, int(c * width)) for c in (64, 128, 256, 512)]
    x = net.conv("image", 3, channels[0], 7, 2, name="stem")
    x = net.op("MaxPool", [x], "stem_pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    before = channels[0]
    for stage, outputs in enumerate(channels, 1):
        for block in (1, 2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 1 else 1
            short = x
            if stride > 1 or before != outputs:
                short = net.conv(x, before, outputs, 1, stride, relu=False, name=f"{name}.downsample")
            y = net.conv(x, before, outputs, 3, stride, name=f"{name}.conv1")
            y = net.conv(y, outputs, outputs, 3, relu=False, name=f"{name}.conv2")
            x = net.op("Relu", [net.op("Add", [y, short], f"{name}.add")], f"{name}.relu")
            before = outputs
    net.classifier(x, before, classes)
    return net.model("resnet18", size, classes)


def mobilenet_v1(size=224, width=1.0, classes=1000):
    scaled = lambda c: max(8, int(c * width))
    net, before = Network(), scaled(32)
    x = net.conv("image", 3, before, 3, 2, name="stem")
    layers = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for i, (outputs, stride) in enumerate(layers, 1):
        x = net.conv(x, before, before, 3, stride, groups=before, name=f"block{i}.depthwise")
        x = net.conv(x, before, scaled(outputs), 1, name=f"block{i}.pointwise")
        before = scaled(outputs)
    net.classifier(x, before, classes)
    return net.model("mobilenet_v1", size, classes)


NETWORKS = {"resnet18": resnet18, "mobilenet_v1": mobilenet_v1}


def images(count, size, seed=SEED):
    return np.random.default_rng(seed).standard_normal((count, 3, size, size)).astype(np.float32)
