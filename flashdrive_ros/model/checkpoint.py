"""Loading a checkpoint folder: tensor by tensor from memory-mapped files straight into the network on its device.

The network is made without memory, then allocated once on its device. Of the files, at most `PIECE_BYTES` are in host
memory at a time, so that a model much larger than the host's memory loads onto a GPU.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from flashdrive_ros.errors import ModelFileError
from flashdrive_ros.model.checkpoint_files import StoredTensor
from flashdrive_ros.model.checkpoint_folder import Checkpoint, checked_checkpoint
from flashdrive_ros.model.checkpoint_names import EMBEDDING, HEAD
from flashdrive_ros.model.config import ModelConfig
from flashdrive_ros.model.network import Network

PIECE_BYTES = 64 << 20
TORCH_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def load_network(folder: Path, device: torch.device, dtype: torch.dtype) -> Network:
    """The network of a checkpoint folder, checked and ready for inference.

    Raises ModelFileError naming the file, what was found and what was expected.
    """
    checkpoint, config = checked_checkpoint(folder)
    return network_of(checkpoint, config, device, dtype)


def network_of(checkpoint: Checkpoint, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Network:
    """The network of a checkpoint without faults; `config` is the checkpoint's, perhaps for another rig.

    Raises ModelFileError for a file that changed since it was checked, or too little memory on the device.
    """
    tied = checkpoint.sources[HEAD] == checkpoint.sources[EMBEDDING]
    network = empty_network(config, device, dtype, tied, str(checkpoint.folder))
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        fill_parameters(parameters, checkpoint.sources)
        _fill_drafter(network, checkpoint)
    return network.eval().requires_grad_(False)


def empty_network(config: ModelConfig, device: torch.device, dtype: torch.dtype, tied: bool, name: str) -> Network:
    """A network of `config` with memory on `device` but no values; `tied`: the head is the embedding.

    Raises ModelFileError when `device` has not enough memory for the model `name`.
    """
    with torch.device("meta"):
        network = Network(config).to(dtype)
    needed = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    try:
        network.to_empty(device=device)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        found = f"{device} has not the {needed / 1e9:.1f} GB that the weights need in {dtype}"
        raise ModelFileError(f"{name}: {found}; use a smaller model or another device") from error
    if tied:
        network.vlm.lm_head.weight = network.vlm.model.language_model.embed_tokens.weight
    return network


def fill_parameters(parameters: dict[str, nn.Parameter], sources: dict[str, StoredTensor]) -> None:
    """Copy every source into the parameter of its name, file by file in the order of the bytes."""
    by_file: dict[Path, list[tuple[StoredTensor, nn.Parameter]]] = {}
    for name, source in sources.items():
        if name in parameters:  # a tied head is filled as the embedding
            by_file.setdefault(source.file, []).append((source, parameters[name]))
    for path, copies in by_file.items():
        try:
            copy_tensors(path, sorted(copies, key=lambda copy: copy[0].begin))
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path}: cannot be read ({error}); copy the file again") from error


def copy_tensors(path: Path, copies: Iterable[tuple[StoredTensor, Tensor]]) -> None:
    """Copy tensors of one file to where they belong, converting their dtype, in pieces of at most `PIECE_BYTES`."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        for source, target in copies:
            dtype = TORCH_DTYPES[source.dtype]
            flat = target.view(-1)
            step = PIECE_BYTES // dtype.itemsize
            for first in range(0, flat.numel(), step):
                count = min(step, flat.numel() - first)
                offset = source.begin + first * dtype.itemsize
                piece = torch.frombuffer(mapped, dtype=dtype, count=count, offset=offset)
                flat[first : first + count].copy_(piece)
                del piece  # the map cannot be closed while a tensor looks into it
                _forget(mapped, offset, count * dtype.itemsize)


def _forget(mapped: mmap.mmap, offset: int, length: int) -> None:
    """Give the pages that lie wholly in the range back to the system."""
    begin = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (offset + length) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > begin:
        mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def _fill_drafter(network: Network, checkpoint: Checkpoint) -> None:
    """The mask row from wherever it is; without a drafter, values that make it propose anything at all."""
    drafter = checkpoint.drafter
    if drafter is None:
        network.drafter.fc.weight.zero_()
        for norm in (network.drafter.hidden_norm, network.drafter.norm):
            norm.weight.fill_(1.0)
        network.drafter.mask_embedding.zero_()
    elif drafter.mask_pickle is not None:
        network.drafter.mask_embedding.copy_(_pickled_row(drafter.mask_pickle).view(-1))
    elif drafter.mask_row is not None:
        table = network.vlm.model.language_model.embed_tokens.weight
        network.drafter.mask_embedding.copy_(table[drafter.mask_row])


def _pickled_row(path: Path) -> Tensor:
    """The tensor in a file of torch.save, or the only one of a dictionary of it."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise ModelFileError(f"{path}: not a tensor written by torch.save ({error})") from error
    if isinstance(content, dict) and len(content) == 1:
        (content,) = content.values()
    if not isinstance(content, Tensor):
        raise ModelFileError(f"{path}: {type(content).__name__} found, a tensor expected")
    return content
