"""Names of models that go together; apart from zoo.py, so that they can be read without torch."""

# Those whose speed is compared: batch 1, every size fixed.
SPEED = [
    "resnet50",
    "mobilenet_v2",
    "squeezenet1_1",
    "inception_v3",
    "vgg16",
    "densenet121",
    "efficientnet_b0",
    "vit_b_16",
    "bert_s128",
    "gpt2_s128",
]

# Those that the search over rewrites is measured on, at batch 1 and 16.
SEARCH_ONE = [
    "resnet50",
    "resnext50",
    "nasnet_a",
    "nasrnn",
    "bert_s128",
    "inception_v3",
    "squeezenet1_1",
    "vgg19",
]
SEARCH = SEARCH_ONE + [f"{name}_b16" for name in SEARCH_ONE]

# Those that corrected mutants are measured on, at batch 1 and 16: PET's.
MUTATE_ONE = ["resnet18", "csrnet", "inception_v3", "bert_s128", "resnet3d_18"]
MUTATE = MUTATE_ONE + [f"{name}_b16" for name in MUTATE_ONE]
