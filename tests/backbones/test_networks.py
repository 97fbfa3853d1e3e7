"""Networks: the field's names and widths, non-negative features, mixing at every depth."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sinkshot.backbones.networks import build, names
from sinkshot.errors import InputError

TINY = {
    "wrn-28-10": {"depth": 10, "widen": 1},
    "resnet12": {"first": 4},
    "resnet18": {"first": 4},
    "resnet10": {"first": 4},
    "densenet121": {"growth": 4, "layers": (2, 2, 2, 2)},
    "conv4": {"channels": 8},
    "conv64": {"channels": 8},
}
FIELD = {  # width, parameters without a classifier (DenseNet121 and WRN-28-10: as published)
    "wrn-28-10": (640, 36_472_784),
    "resnet12": (640, 12_424_320),
    "resnet18": (512, 11_168_832),
    "resnet10": (512, 4_898_112),
    "densenet121": (1024, 6_953_856),
    "conv4": (64, 112_832),
    "conv64": (1600, 112_832),
}


@pytest.fixture(params=names())
def tiny(request):
    """A small network of each registered name, with batch norm statistics from a few images."""
    torch.manual_seed(0)
    network = build(request.param, **TINY[request.param])
    with torch.no_grad():
        network(torch.randn(16, 3, 32, 32))
    return network.eval()


@pytest.fixture
def images():
    return torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", names())
def test_widths_and_sizes_are_those_of_the_field(name):
    network = build(name, size=84)
    assert (network.width, sum(p.numel() for p in network.parameters())) == FIELD[name]


@pytest.mark.parametrize("size", [32, 84])
def test_features_are_pooled_and_not_negative(tiny, size):
    network = build(tiny.name, **{**TINY[tiny.name], "size": size}).eval()
    with torch.no_grad():
        features = network(torch.randn(2, 3, size, size))
    assert features.shape == (2, network.width)
    assert features.min() >= 0
    assert features.max() > 0


def test_flat_conv4_has_the_1600_features_of_the_first_papers():
    network = build("conv4", flat=True, size=84).eval()
    with torch.no_grad():
        assert network(torch.randn(1, 3, 84, 84)).shape == (1, 1600) == (1, network.width)


def test_conv64_has_256_features_at_32_pixels():
    assert build("conv64").width == 256


def test_resnet10_is_resnet18_without_the_second_block_of_each_group():
    one, two = (set(build(name, first=4).state_dict()) for name in ("resnet10", "resnet18"))
    assert one < two
    assert {key.split(".")[1] for key in two - one} == {"1"}


def test_mixing_with_lam_0_at_any_depth_gives_the_features_of_the_partner(tiny, images):
    permutation = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        plain = tiny(images)
        for depth in range(tiny.blocks + 1):
            mixed = tiny(images, (depth, permutation, torch.tensor(0.0)))
            torch.testing.assert_close(mixed, plain[permutation])
            torch.testing.assert_close(tiny(images, (depth, permutation, torch.ones(5))), plain)


def test_depth_0_mixes_the_images_themselves_and_every_depth_is_another_place(tiny, images):
    permutation, lam = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([0.3, 0.5, 0.9, 0.1, 0.7])
    each = lam[:, None, None, None]
    with torch.no_grad():
        by_hand = tiny(each * images + (1 - each) * images[permutation])
        found = [tiny(images, (depth, permutation, lam)) for depth in range(tiny.blocks + 1)]
    torch.testing.assert_close(found[0], by_hand)
    for depth in range(1, len(found)):
        assert not torch.allclose(found[depth], found[depth - 1], atol=1e-4)


def test_one_lam_for_all_is_the_same_lam_for_each(tiny, images):
    permutation = torch.tensor([1, 2, 3, 4, 0])
    with torch.no_grad():
        one = tiny(images, (1, permutation, torch.tensor(0.25)))
        torch.testing.assert_close(one, tiny(images, (1, permutation, torch.full((5,), 0.25))))


def test_mixing_keeps_the_precision_of_the_activations(tiny, images):
    half = tiny.to(torch.bfloat16)
    with torch.no_grad():
        assert half(images.bfloat16(), (1, torch.arange(5), torch.tensor(0.5))).dtype == torch.bfloat16


@pytest.mark.slow
def test_a_network_is_one_graph_for_the_compiler(tiny, images):
    torch.compiler.reset()  # networks of other tests share the code
    compiled = torch.compile(tiny, backend="eager", fullgraph=True)
    mix = (1, torch.arange(4, -1, -1), torch.rand(5))
    with torch.no_grad():
        torch.testing.assert_close(compiled(images, mix), tiny(images, mix))


def test_weights_and_activations_are_channels_last(tiny, images):
    seen = []
    first = next(module for module in tiny.modules() if isinstance(module, torch.nn.Conv2d))
    first.register_forward_hook(lambda *found: seen.append(found[2]))
    with torch.no_grad():
        tiny(images)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    kernels = [m.weight for m in tiny.modules() if isinstance(m, torch.nn.Conv2d)]
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


def test_the_wide_network_computes_pre_activated_residual_blocks():
    torch.manual_seed(0)
    network = build("wrn-28-10", depth=10, widen=2).eval()
    with torch.no_grad():
        for buffer in network.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5)
    state, x = network.state_dict(), torch.randn(2, 3, 32, 32)

    def norm(x, name):
        values = [state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.relu(F.batch_norm(x, *values))

    by_hand = F.conv2d(x, state["conv1.weight"], padding=1)
    for group, stride in (("block1", 1), ("block2", 2), ("block3", 2)):
        at = f"{group}.layer.0"
        active = norm(by_hand, f"{at}.bn1")
        inner = norm(F.conv2d(active, state[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn2")
        shortcut = F.conv2d(active, state[f"{at}.convShortcut.weight"], stride=stride)
        by_hand = shortcut + F.conv2d(inner, state[f"{at}.conv2.weight"], padding=1)
    with torch.no_grad():
        torch.testing.assert_close(network(x), norm(by_hand, "bn1").mean((2, 3)))


def test_the_stem_of_resnet18_halves_large_images_only():
    strides = {size: build("resnet18", first=4, size=size).stem[0].stride for size in (32, 36, 84)}
    assert strides == {32: (1, 1), 36: (1, 1), 84: (2, 2)}


def test_name_and_options_make_a_network_again():
    one = build("densenet121", growth=4, layers=(1, 2), size=84)
    again = build(one.name, **one.options)
    assert {k: v.shape for k, v in one.state_dict().items()} == {k: v.shape for k, v in again.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("resnet13", {}, "unknown network 'resnet13'; did you mean 'resnet18' or 'resnet12'"),
        ("wrn-28-10", {"width": 10}, "unknown option of wrn-28-10 'width'"),
        ("wrn-28-10", {"depth": 27}, "6 n \\+ 4 .* 27 was given"),
        ("resnet12", {"first": 0}, "first of resnet12 must be a whole number of at least 1; 0 was given"),
        ("conv4", {"size": 8}, "size of conv4 must be a whole number of at least 16"),
        ("conv4", {"flat": 5}, "flat of conv4 must be true or false; 5 was given"),
        ("wrn-28-10", {"dropout": 2}, "dropout of wrn-28-10 must be a number of at least 0 and below 1; 2 was given"),
        ("densenet121", {"layers": 5}, "layers of densenet121 must be a list of whole numbers; 5 was given"),
        ("densenet121", {"layers": [6, 0]}, "layers of densenet121 must be a whole number of at least 1; 0 was given"),
        ("resnet18", {"stem_stride": 0}, "stem_stride of resnet18 must be a whole number of at least 1; 0 was given"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_sentence(name, options, sentence):
    with pytest.raises(InputError, match=sentence):
        build(name, **options)
