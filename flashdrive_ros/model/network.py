"""The whole network as one module tree whose parameter names are the published checkpoint's (spec A.13)."""

from __future__ import annotations

import torch
from torch import nn

from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.drafter import Drafter
from flashdrive_ros.model.expert import ActionInProjection, Expert
from flashdrive_ros.model.language import LanguageModel
from flashdrive_ros.model.vision import VisionTower


class VisionLanguageBody(nn.Module):
    """`vlm.model`: vision tower and text decoder."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.visual = VisionTower(config.vision, config.text.hidden)
        self.language_model = LanguageModel(config.text)


class VisionLanguageModel(nn.Module):
    """`vlm`: body and the untied head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.model = VisionLanguageBody(config)
        self.lm_head = nn.Linear(config.text.hidden, config.text.vocabulary, bias=False)


class Network(nn.Module):
    """Vision-language model, action expert with its projections, and drafter."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.vlm = VisionLanguageModel(config)
        self.expert = Expert(config.expert, config.text)
        self.action_in_proj = ActionInProjection(config.expert)
        self.action_out_proj = nn.Linear(config.expert.hidden, 2)
        self.drafter = Drafter(config.drafter, config.text)


def initialise(network: Network, seed: int) -> None:
    """Fill every parameter from one seeded generator, in the order of their names.

    Matrices are normal with standard deviation 1 / sqrt(inputs), so that streams keep their scale through any depth;
    norms are one, biases zero, the drafter's mask row is the mean embedding. The action output starts small: an
    untrained flow then hardly moves its noise, whose plans a car could drive.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(network.named_parameters()):
            if parameter.ndim >= 2:
                inputs = parameter[0].numel()
                values = torch.empty(parameter.shape).normal_(0.0, inputs**-0.5, generator=generator)
                parameter.copy_(values)
            elif name.endswith("weight"):
                parameter.fill_(1.0)
            else:
                parameter.zero_()
        network.action_out_proj.weight.mul_(0.1)
        network.drafter.mask_embedding.copy_(network.vlm.model.language_model.embed_tokens.weight.mean(0))


def seeded_network(config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32) -> Network:
    """A network with random weights, ready for inference."""
    network = Network(config)
    initialise(network, seed)
    return network.to(dtype).eval().requires_grad_(False)


def count_parameters(config: ModelConfig) -> int:
    """Number of parameters, counted on the meta device: no memory is used."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Network(config).parameters())
