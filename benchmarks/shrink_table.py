"""Half of all channels cut, by torchlift and by Torch-Pruning, on models people use (random weights).

    python benchmarks/shrink_table.py --out benchmarks/results/shrink_table.json

Each tool runs in a process of its own with a time limit, the two taking turns. Parameters and packed file
(written to disk by ``deploy.save``, for both tools) relative to the dense model; latency of one call in the
layout both get (no channels-last), in CPU time of one thread beside the dense model's; exactness: the
largest difference from the dense model whose channels that went are zero (for torchlift; Torch-Pruning makes
no such promise); CPU seconds to shrink, without the import: the median of five times in one process, and the
first of them; all medians over ``--repeats`` processes. "one_side_fixed" is the part p of the dense
parameters in embeddings and output layers, of which only one side can go: at ratio ½ no tool can leave less
than about ¼ + p/4 ("bound"). The last three models are BERT, GPT-2 and Llama with vocabularies that are as
large a part of them as of BERT-base (22 %), GPT-2 small (32 %) and Llama 2 7B (4 %).
"""

import argparse
import copy
import functools
import importlib
import json
import logging
import multiprocessing
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.example_inputs import tensors
from torchlift.models import resnet

LIMIT = 300
"""Seconds for one tool on one model."""

TIMES = 5
"""How often a model is shrunk in one process."""

HEADS = ("query", "key", "value", "q_proj", "k_proj", "v_proj")
"""Layers whose outputs are heads, by the names that transformers has for them."""


def stirred(model: nn.Module) -> nn.Module:
    """Norms as after training, so that signals neither vanish nor explode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)  # pyright: ignore[reportOptionalMemberAccess]
            module.running_var.uniform_(0.01, 0.1)  # pyright: ignore[reportOptionalMemberAccess]
    return model.eval()


def vit() -> tuple[nn.Module, Any]:
    """A ViT of 5.5 million parameters on 32 × 32 images."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=4, intermediate_size=768, image_size=32,
        patch_size=4,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config).eval(), torch.randn(2, 3, 32, 32)


def mobilenet() -> tuple[nn.Module, Any]:
    """MobileNetV2 on 64 × 64 images."""
    import transformers

    config = transformers.MobileNetV2Config(image_size=64)
    return stirred(transformers.MobileNetV2ForImageClassification(config)), torch.randn(2, 3, 64, 64)


def resnet20() -> tuple[nn.Module, Any]:
    """ResNet-20."""
    return stirred(resnet(20)), torch.randn(2, 3, 32, 32)


def bert(vocabulary: int = 1000) -> tuple[nn.Module, Any]:
    """A BERT of 4 layers."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval(), torch.randint(vocabulary, (2, 32))


def gpt2(vocabulary: int = 1000) -> tuple[nn.Module, Any]:
    """A GPT-2 of 4 layers, its embedding and its output tied."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=256, n_layer=4, n_head=4, n_positions=64, bos_token_id=0,
        eos_token_id=1, use_cache=False,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval(), torch.randint(vocabulary, (2, 32))


def llama(vocabulary: int = 1000) -> tuple[nn.Module, Any]:
    """A Llama of 4 layers with grouped heads."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=256, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, intermediate_size=688, bos_token_id=0, eos_token_id=1, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval(), torch.randint(vocabulary, (2, 32))


MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "ResNet-20": resnet20,
    "MobileNetV2": mobilenet,
    "ViT": vit,
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama": llama,
    "BERT, 22 % vocabulary": functools.partial(bert, 3500),
    "GPT-2, 32 % vocabulary": functools.partial(gpt2, 5700),
    "Llama, 4 % vocabulary": functools.partial(llama, 229),
}


def ours(model: nn.Module, x: Any) -> nn.Module:
    """Half of every group of channels by magnitude."""
    from torchlift.deploy import prune

    return prune(model, x, 0.5)


def masked_by_us(model: nn.Module, x: Any) -> nn.Module:
    """The dense model with the channels that :func:`ours` cuts set to zero."""
    from torchlift.channels.cuts import masked_copy
    from torchlift.channels.follow import traced
    from torchlift.channels.scores import PruningChoice, chosen_channels, scores_of
    from torchlift.channels.surgery import usable

    free = [c for c in usable(model, traced(model, x, values=False)[0], x) if not c.blocked]
    return masked_copy(
        model, free, chosen_channels(free, scores_of(model, free, PruningChoice()), PruningChoice())
    )


def theirs(
    model: nn.Module,
    x: Any,
    note: Callable[[Any, Any], object] | None = None,
    outputs: Collection[str] = ("classifier", "lm_head", "head", "fc"),
) -> nn.Module:
    """Torch-Pruning's magnitude pruner with its options for attention heads; ``note`` sees every group.

    ``outputs``: the layers whose outputs are the model's.
    """
    import torch_pruning

    model = copy.deepcopy(model)
    heads = {
        module: int(getattr(parent, "num_attention_heads", getattr(parent, "num_heads", 0)) or 0)
        for parent in model.modules()
        for name, module in parent.named_children()
        if name in HEADS
    }
    pruner = torch_pruning.pruner.MagnitudePruner(
        model,
        x,
        importance=torch_pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=0.5,
        ignored_layers=[m for n, m in model.named_modules() if n in outputs],
        num_heads={module: count for module, count in heads.items() if count},
        prune_num_heads=True,
        output_transform=lambda out: first_output(out).sum(),
    )
    for group in pruner.step(interactive=True) or ():
        if note is not None:
            note(pruner, group)
        group.prune()
    modules: list[Any] = [*model.modules()]
    for module in modules:  # as its own examples for ViT and BERT do
        for query in (getattr(module, name, None) for name in ("query", "q_proj")):
            if query in pruner.num_heads:
                module.num_attention_heads = heads = pruner.num_heads[query]
                module.all_head_size = query.out_features
                module.head_dim = module.attention_head_size = query.out_features // heads
    return model


def first_output(out: Any) -> Tensor:
    """The logits of what a model gives, or its first numbers."""
    return out.logits if hasattr(out, "logits") else next(t for t in tensors(out) if t.is_floating_point())


def logits(model: nn.Module, x: Any) -> Tensor:
    """The output that counts."""
    with torch.no_grad():
        out = model(x)
    return out if isinstance(out, Tensor) else out.logits


def work(name: str, tool: str, out: Any) -> None:
    """Shrink a model by a tool, and measure."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model, x = MODELS[name]()
    small, seconds = timed(ours if tool == "torchlift" else theirs, model, x)
    small = small.eval()
    for module in small.modules():  # both in the same layout
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=torch.contiguous_format)
    numbers: dict[str, Any] = {
        "parameters": size(small.parameters()) / size(model.parameters()),
        "one_side_fixed": size(fixed(model)) / size(model.parameters()),
        "bound": 0.25 + 0.25 * size(fixed(model)) / size(model.parameters()),
        "file": on_disk(small) / on_disk(model),
        "seconds": statistics.median(seconds),
        "seconds_first": seconds[0],
    }
    logits(small, x)  # must run
    if tool == "torchlift":
        reference = logits(masked_by_us(model, x), x)
        scale = max(1.0, float(reference.abs().max()))
        numbers["largest_difference"] = float((logits(small, x) - reference).abs().max()) / scale
    numbers["latency"] = latency(model, small, x)
    out.put(numbers)


def timed(
    shrink: Callable[[nn.Module, Any], nn.Module], model: nn.Module, x: Any
) -> tuple[nn.Module, list[float]]:
    """What a tool makes of a model, and the CPU seconds of every time that it did."""
    for name in ("torch_pruning", "torchlift.deploy"):  # the time of an import is no time to shrink
        importlib.import_module(name)
    small, seconds = model, list[float]()
    for _ in range(TIMES):
        start = time.process_time()
        small = shrink(model, x)
        seconds.append(time.process_time() - start)
    return small, seconds


def size(parameters: Iterable[Tensor]) -> int:
    """How many numbers, tied ones once."""
    return sum(p.numel() for p in {id(p): p for p in parameters}.values())


def fixed(model: nn.Module) -> list[Tensor]:
    """The weights of embeddings and output layers."""
    last = ("classifier", "lm_head", "head", "fc")
    return [
        module.weight  # pyright: ignore[reportReturnType]
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) or (name in last and isinstance(module, nn.Linear))
    ]


def on_disk(model: nn.Module) -> int:
    """Bytes of the packed file."""
    from torchlift.deploy import save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tlift"
        save(model, path)
        return path.stat().st_size


def latency(model: nn.Module, small: nn.Module, x: Any, rounds: int = 50) -> float:
    """The median of paired ratios of CPU time, on one thread."""
    ratios: list[float] = []
    with torch.inference_mode():
        for number in range(rounds + 3):
            times: list[float] = []
            for net in (model, small):
                start = time.thread_time()
                net(x)
                times.append(time.thread_time() - start)
            if number >= 3:
                ratios.append(times[1] / times[0])
    return statistics.median(ratios)


def limited(name: str, tool: str) -> dict[str, Any]:
    """The numbers, or what happened instead."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(name, tool, queue))
    process.start()
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if not queue.empty():
            return queue.get()
        if not process.is_alive() and queue.empty():
            return {"failed": f"ended with code {process.exitcode}"}
        time.sleep(0.2)
    process.kill()
    return {"failed": f"no end within {LIMIT} s"}


def repeated(name: str, tools: list[str], repeats: int) -> dict[str, dict[str, Any]]:
    """By tool, medians over processes; what failed once is not tried again."""
    by_tool: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
    for _ in range(repeats):
        for tool, rows in by_tool.items():
            if not any("failed" in row for row in rows):
                rows.append(limited(name, tool))
    return {tool: rows[-1] if "failed" in rows[-1] else medians(rows) for tool, rows in by_tool.items()}


def medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians, and the times of all."""
    result = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return result | {"seconds_of_each": [round(row["seconds"], 3) for row in rows]}


def main() -> None:
    """One row for each model and tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/shrink_table.json"))
    parser.add_argument("--tools", nargs="*", default=["torchlift", "torch-pruning"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.models:
        record[name] = record.get(name, {}) | repeated(name, options.tools, options.repeats)
        options.out.write_text(json.dumps(record, indent=2) + "\n")
        print(name, json.dumps(record[name]), flush=True)


if __name__ == "__main__":
    main()
