"""Networks whose cells were found by search (Zoph et al., 2017 and 2018), written out from the papers' figures."""
import torch
from torch import nn
from torch.nn import functional


class Separable(nn.Module):
    """Relu, depthwise and pointwise convolution, norm; all of it twice, as the paper has it. A stride is the first one's."""

    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        parts = []
        for channels, step in ((inputs, stride), (outputs, 1)):
            parts += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                nn.Conv2d(channels, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            ]
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return self.parts(x)


class Fit(nn.Module):
    """Makes what a cell takes as wide as its blocks, and as small as the cell's other input."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.parts = nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return self.parts(x)


def average(x, stride=1):
    return functional.avg_pool2d(x, 3, stride, 1, count_include_pad=False)


def largest(x):
    return functional.max_pool2d(x, 3, 2, 1)


class NormalCell(nn.Module):
    def __init__(self, before, now, width, shrink):
        super().__init__()
        self.fit_before, self.fit_now = Fit(before, width, 2 if shrink else 1), Fit(now, width)
        self.now_3, self.now_5 = Separable(width, width, 3), Separable(width, width, 5)
        self.before_3, self.before_5 = Separable(width, width, 3), Separable(width, width, 5)
        self.other_3 = Separable(width, width, 3)
        self.outputs = 5 * width

    def forward(self, before, now):
        before, now = self.fit_before(before), self.fit_now(now)
        blocks = [
            self.now_3(now) + now,
            self.before_3(before) + self.now_5(now),
            average(now) + before,
            average(before) + average(before),
            self.before_5(before) + self.other_3(before),
        ]
        return torch.cat(blocks, 1)


class ReductionCell(nn.Module):
    def __init__(self, before, now, width, shrink):
        super().__init__()
        self.fit_before, self.fit_now = Fit(before, width, 2 if shrink else 1), Fit(now, width)
        self.before_7, self.other_7 = Separable(width, width, 7, 2), Separable(width, width, 7, 2)
        self.before_5, self.now_5 = Separable(width, width, 5, 2), Separable(width, width, 5, 2)
        self.block_3 = Separable(width, width, 3)
        self.outputs = 4 * width

    def forward(self, before, now):
        before, now = self.fit_before(before), self.fit_now(now)
        first = self.before_7(before) + self.now_5(now)
        second = largest(now) + self.other_7(before)
        third = average(now, 2) + self.before_5(before)
        fourth = largest(now) + self.block_3(first)
        return torch.cat([second, third, fourth, average(first) + second], 1)


class NasNetA(nn.Module):
    """Three stacks of `repeat` normal cells with a reduction cell between them, after a stem of two more.

    The paper's NASNet-A (4 @ 1056) is repeat=4, width=44."""

    def __init__(self, repeat=4, width=44, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32))
        widths = [(ReductionCell, width // 4), (ReductionCell, width // 2)]
        for stack in range(3):
            widths += [(ReductionCell, width << stack)] if stack else []
            widths += [(NormalCell, width << stack)] * repeat
        before = now = 32
        shrink = False
        cells = []
        for kind, cell_width in widths:
            cells.append(kind(before, now, cell_width, shrink))
            shrink = kind is ReductionCell
            before, now = now, cells[-1].outputs
        self.cells = nn.ModuleList(cells)
        self.head = nn.Linear(now, classes)

    def forward(self, image):
        before = now = self.stem(image)
        for cell in self.cells:
            before, now = now, cell(before, now)
        return self.head(functional.relu(now).mean((2, 3)))


class NasCell(nn.Module):
    """The recurrent cell: eight products of the input and eight of the state, joined in a tree of three levels."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.of_input = nn.ModuleList(nn.Linear(inputs, hidden) for _ in range(8))
        self.of_state = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(8))

    def forward(self, x, state, memory):
        a = [of(x) for of in self.of_input]
        b = [of(state) for of in self.of_state]
        sigmoid, tanh = torch.sigmoid, torch.tanh
        first = tanh(sigmoid(a[0] + b[0]) * torch.relu(a[1] + b[1]))
        second = tanh(sigmoid(a[2] + b[2]) + torch.relu(a[3] * b[3]))
        third = tanh(tanh(a[4] + b[4]) * sigmoid(a[5] + b[5]))
        fourth = sigmoid(tanh(a[6] + b[6]) + sigmoid(a[7] + b[7]))
        memory = tanh(first + memory) * second
        return tanh(memory * tanh(third + fourth)), memory


class NasRnn(nn.Module):
    """The cell over the steps of a sequence [batch, steps, inputs]; gives the state after the last."""

    def __init__(self, hidden=512):
        super().__init__()
        self.hidden, self.cell = hidden, NasCell(hidden, hidden)

    def forward(self, sequence):
        state = memory = torch.zeros(sequence.shape[0], self.hidden)
        for x in sequence.unbind(1):
            state, memory = self.cell(x, state, memory)
        return state
