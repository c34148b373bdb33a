"""ModelConfig: the one frozen description of a model; every shape, constant and token id is a field here.

Sources: spec of the Alpamayo family (geometry A.2 to A.10, token ids A.5, prompt A.6). Another model of the
family is another value of these types, never another branch in the code.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class VisionConfig:
    """Qwen3-VL vision tower over still images of one fixed size."""

    depth: int
    hidden: int
    heads: int
    mlp: int
    deepstack_blocks: tuple[int, ...]
    """Blocks after which a deepstack merger taps the stream, ascending."""
    image_height: int
    image_width: int
    patch: int = 16
    temporal_patch: int = 2
    merge: int = 2
    position_grid: int = 48
    """Side of the square table of learned positions."""
    rope_theta: float = 1e4
    norm_eps: float = 1e-6

    @property
    def grid(self) -> tuple[int, int]:
        """Patch rows and columns of one image."""
        return self.image_height // self.patch, self.image_width // self.patch

    @property
    def patches(self) -> int:
        """Patches of one image."""
        return self.grid[0] * self.grid[1]

    @property
    def patch_values(self) -> int:
        """Length of one flattened patch: channel, time, y, x."""
        return 3 * self.temporal_patch * self.patch * self.patch

    @property
    def image_tokens(self) -> int:
        """Visual tokens of one image after the merger."""
        return self.patches // self.merge**2


@dataclass(frozen=True)
class TextConfig:
    """Qwen3-VL text decoder."""

    layers: int
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    mrope_section: tuple[int, int, int]
    """Frequencies of the t, h and w axes; their sum is head_dim / 2."""
    rope_theta: float = 5e6
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class ExpertConfig:
    """Action expert: a text decoder without embedding whose layer i reads the keys of text layer `text_layer[i]`."""

    hidden: int
    query_heads: int
    mlp: int
    text_layer: tuple[int, ...]
    """Text layer whose cache each expert layer attends to."""
    projection_hidden: int
    """Width of the waypoint projection's trunk."""
    fourier_features: int = 20
    max_frequency: float = 100.0


@dataclass(frozen=True)
class DrafterConfig:
    """DFlash block drafter (spec techniques 1.2 and 1.8): stateless, local positions."""

    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    tapped_layers: tuple[int, ...]
    """Text layers whose outputs are concatenated into the context features."""
    block: int = 8
    """Rows of a verify pass: the anchor and block - 1 proposals."""
    context_rows: int = 8
    rope_theta: float = 1e6
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class ActionConfig:
    """Action space and flow: normalised (acceleration, curvature) of a unicycle."""

    waypoints: int = 64
    dt_s: float = 0.1
    acceleration_mean: float = 0.02902694707164455
    acceleration_std: float = 0.6810426736454882
    curvature_mean: float = 0.0002692167976330542
    curvature_std: float = 0.026148280660833106
    flow_steps: int = 8
    """Steps of the time grid; the dense schedule evaluates the network at each."""


@dataclass(frozen=True)
class TokenIds:
    """Ids of the special tokens."""

    pad: int
    im_start: int
    im_end: int
    vision_start: int
    vision_end: int
    image_pad: int
    trajectory_first: int
    """First of the `<i*>` bins; none of them is ever generated as reasoning."""
    trajectory_count: int
    history_first: int
    """First of the ego history bins."""
    history_start: int
    history_end: int
    cot_start: int
    cot_end: int
    future_start: int
    route_start: int
    route_end: int
    never_generated: tuple[int, ...] = ()
    """Ids beside the bins that are never reasoning."""


@dataclass(frozen=True)
class PromptConfig:
    """What a prompt is made of and how much room each part has."""

    cameras: tuple[int, ...]
    """Alpamayo camera indices, ascending; the views of the prompt in this order."""
    frames: int = 4
    stride_s: float = 0.1
    system_text: str = "You are a driving assistant that generates safe and accurate actions."
    request_text: str = (
        "output the chain-of-thought reasoning of the driving process, then output the future trajectory."
    )
    camera_label: str = "{name}: "
    """Before the first frame of a camera; empty for none."""
    frame_label: str = "frame {index} "
    """Before every frame; empty for none."""
    history_steps: int = 16
    history_min_m: tuple[float, float, float] = (-4.0, -4.0, -10.0)
    history_max_m: tuple[float, float, float] = (4.0, 4.0, 10.0)
    history_bins: int = 1000
    history_origin: bool = True
    """Whether the oldest position itself is the first step, or only the steps between positions count."""
    route_capacity: int = 16
    """Route tokens that fit, its two delimiters included."""
    reasoning_capacity: int = 128
    """Most reasoning tokens of a window, cot_end and future_start not counted."""
    draft_capacity: int = 32
    """Rows of the prefill that carry the previous reasoning as a draft."""

    @property
    def history_tokens(self) -> int:
        """Ego history tokens: x, y, z of every step."""
        return 3 * (self.history_steps - (0 if self.history_origin else 1))


@dataclass(frozen=True)
class ModelConfig:
    """One model."""

    name: str
    vision: VisionConfig
    text: TextConfig
    expert: ExpertConfig
    drafter: DrafterConfig
    tokens: TokenIds
    prompt: PromptConfig
    action: ActionConfig = field(default_factory=ActionConfig)
    sampling_candidates: int = 0
    """Most likely tokens among which a token is sampled; 0 means the whole vocabulary."""


def with_cameras(config: ModelConfig, cameras: tuple[int, ...]) -> ModelConfig:
    """The same model on another rig."""
    return replace(config, prompt=replace(config.prompt, cameras=cameras))


_ALPAMAYO_TOKENS = TokenIds(
    pad=151643,
    im_start=151644,
    im_end=151645,
    vision_start=151652,
    vision_end=151653,
    image_pad=151655,
    trajectory_first=151669,
    trajectory_count=4000,
    history_first=154669,
    history_start=155674,
    history_end=155676,
    cot_start=155677,
    cot_end=155678,
    future_start=155681,
    route_start=155690,
    route_end=155692,
)

ALPAMAYO_1_5 = ModelConfig(
    name="alpamayo-1.5",
    vision=VisionConfig(
        depth=27, hidden=1152, heads=16, mlp=4304, deepstack_blocks=(8, 16, 24), image_height=320, image_width=576
    ),
    text=TextConfig(
        layers=36,
        hidden=4096,
        query_heads=32,
        kv_heads=8,
        head_dim=128,
        mlp=12288,
        vocabulary=155697,
        mrope_section=(24, 20, 20),
    ),
    expert=ExpertConfig(hidden=2048, query_heads=16, mlp=8256, text_layer=tuple(range(36)), projection_hidden=512),
    drafter=DrafterConfig(
        layers=2, query_heads=32, kv_heads=8, head_dim=128, mlp=12288, tapped_layers=(24, 30, 31, 32, 34)
    ),
    tokens=_ALPAMAYO_TOKENS,
    prompt=PromptConfig(cameras=(0, 1, 2, 6)),
)

ALPAMAYO_1 = replace(
    ALPAMAYO_1_5,
    name="alpamayo-1",
    prompt=replace(ALPAMAYO_1_5.prompt, camera_label="", frame_label="", route_capacity=0),
)

# nano: the same network at about 10 M parameters, sized for one plan in 150 ms on two CPU cores. Why these widths:
# head_dim 32 gives the three M-RoPE axes 6/5/5 frequencies and keeps reading the whole ring cheap; two KV heads keep
# the grouped-query path; six text layers leave room for three deepstack layers and three that only see text; 96x160
# pixels are 15 tokens a frame, so that one window is 68 visual rows; the expert is half as wide as the text model, as
# in Alpamayo. The vocabulary holds 1024 byte-level BPE pieces, the special tokens and the 1000 history bins.
NANO = ModelConfig(
    name="nano",
    vision=VisionConfig(
        depth=4, hidden=128, heads=4, mlp=512, deepstack_blocks=(0, 1, 2), image_height=96, image_width=160
    ),
    text=TextConfig(
        layers=6,
        hidden=256,
        query_heads=4,
        kv_heads=2,
        head_dim=32,
        mlp=640,
        vocabulary=2047,
        mrope_section=(6, 5, 5),
    ),
    expert=ExpertConfig(hidden=128, query_heads=4, mlp=384, text_layer=tuple(range(6)), projection_hidden=128),
    drafter=DrafterConfig(layers=1, query_heads=4, kv_heads=2, head_dim=32, mlp=640, tapped_layers=(1, 3, 4)),
    tokens=TokenIds(
        pad=1024,
        im_start=1025,
        im_end=1026,
        vision_start=1027,
        vision_end=1028,
        image_pad=1029,
        trajectory_first=1047,
        trajectory_count=1000,
        history_first=1047,
        history_start=1030,
        history_end=1031,
        cot_start=1032,
        cot_end=1033,
        future_start=1034,
        route_start=1035,
        route_end=1036,
    ),
    prompt=PromptConfig(
        cameras=(0, 1, 2, 6),
        system_text="You drive.",
        request_text="Reason, then plan.",
        camera_label="{name}:",
        frame_label=" frame {index}",
        route_capacity=16,
        reasoning_capacity=24,
        draft_capacity=24,
    ),
    sampling_candidates=64,
)

CONFIGS: dict[str, ModelConfig] = {config.name: config for config in (ALPAMAYO_1_5, ALPAMAYO_1, NANO)}
