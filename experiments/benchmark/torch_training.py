"""Train in PyTorch without Keras as it is run: windows of a text, an optimizer and its schedule, a log, checkpoints.

"torch", "torch_blocks" and "torch_layers" do what `experiments.compare` does at its defaults; the Transformer of the
first two has nanoGPT's layers, that of the third the layers of `compare`. The model "gpt2" follows train.py of nanoGPT
(Karpathy, 2022, MIT license, github.com/karpathy/nanoGPT) with its README's settings for a CPU: batch_size 12,
block_size 64, n_layer 4, n_head 4, n_embd 128, dropout 0, max_iters 2000, log_interval 1. Windows are drawn as there.
"""

import dataclasses
import functools
import itertools
import math
import tempfile
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import nn

from experiments.benchmark.case import Case
from experiments.benchmark.nanogpt import LEARNING_RATE, Data, warmup_steps
from experiments.benchmark.torch_models import GPT, LSTM, Transformer, initialize_as_nanogpt
from experiments.benchmark.torch_side import DEVICE, wait

STEPS = 2000
NEVER = 10**9
HAS_BFLOAT16 = DEVICE == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
FAST_DTYPE = torch.bfloat16 if HAS_BFLOAT16 else torch.float32


class MuonPerBlock(torch.optim.Optimizer):
    """torch.optim.Muon for matrices of blocks `[blocks rows, columns]`, each of which it orthogonalizes separately.

    It iterates in bfloat16, as torch.optim.Muon does, only where the device has it; elsewhere float32 is faster.
    """

    def __init__(self, params, lr, blocks):
        super().__init__(params, {"lr": lr, "blocks": blocks})

    @torch.no_grad()
    def step(self):
        """Update all matrices."""
        for group in self.param_groups:
            for matrix in group["params"]:
                momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                momentum.lerp_(matrix.grad, 0.05)
                update = matrix.grad.lerp(momentum, 0.95).view(group["blocks"], -1, matrix.shape[1])
                update = orthogonalize(update.to(FAST_DTYPE))
                scale = math.sqrt(max(1, update.shape[1] / update.shape[2]))
                matrix.add_(update.reshape_as(matrix), alpha=-group["lr"] * scale)


def orthogonalize(x):
    """Return `[blocks, rows, columns]` with singular values near 1, by the Newton-Schulz iterations of torch's Muon."""
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
    return x.mT if tall else x


def prepare(case: Case, implementation: str):
    """Return `(run_steps, info)` of training as it is run."""
    text = "".join(topics.values())
    index = {character: n for n, character in enumerate(sorted({*text}))}
    ids = np.array([index[character] for character in text[: int(0.9 * len(text))]], "uint16")
    case = dataclasses.replace(case, vocabulary_size=len(index))
    if case.model == "lstm":
        model = LSTM(case)
    else:
        model = Transformer(case) if implementation == "torch_layers" else GPT(case, bias=False)
    model = model.to(DEVICE)
    if case.model == "gpt2":
        optimizers = [_nanogpt_optimizer(model)]
        factor, intervals = warmup_and_cosine, (1, NEVER)
    else:
        optimizers = _optimizers(model, case, implementation)
        factor, intervals = warmup_and_linear, (50, 500)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    return training_loop(case, model, optimizers, iter(lambda: random_windows(ids, case), None), schedules, *intervals)


def nanogpt(case: Case):
    """Return `(run_steps, info)` of nanoGPT's run for a GPU: train.py with config/train_shakespeare_char.py."""
    data = Data(case)
    torch.manual_seed(1337)
    model = GPT(dataclasses.replace(case, vocabulary_size=data.vocabulary_size), bias=False).to(DEVICE)
    initialize_as_nanogpt(model)
    optimizer = _nanogpt_optimizer(model)
    factor = functools.partial(warmup_and_cosine, total_steps=case.steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    batches = (_on_device(data.windows.batch(step)) for step in range(case.steps))
    run_steps, info = training_loop(case, model, [optimizer], batches, [schedule], log_every=10)

    @torch.no_grad()
    def validate():
        model.eval()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=case.precision == "bfloat16"):
            parts = (torch.from_numpy(part).split(case.batch_size) for part in data.validation_windows)
            losses = [cross_entropy(model(x.to(DEVICE)), y.long().to(DEVICE)) for x, y in zip(*parts, strict=True)]
        model.train()
        return {"val_loss": torch.stack(losses).mean().item()}

    return run_steps, {**info, "validate": validate}


def _nanogpt_optimizer(model):
    """Return AdamW, which decays matrices only."""
    matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) is kind] for kind in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.99), fused=DEVICE == "cuda")


def _on_device(arrays):
    tensors = [torch.from_numpy(array).long() for array in arrays]
    if DEVICE == "cuda":  # as in nanoGPT, so that the copy does not wait for the step before
        tensors = [tensor.pin_memory() for tensor in tensors]
    return [tensor.to(DEVICE, non_blocking=True) for tensor in tensors]


def cross_entropy(logits, targets):
    """Return the mean loss of logits `[B, T, V]`."""
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def _optimizers(model, case: Case, implementation):
    """Return AdamW; or Muon for the hidden matrices, and AdamW for all other weights."""
    parameters = {True: [], False: []}
    for path, parameter in model.named_parameters():
        is_hidden_matrix = parameter.ndim == 2 and path.startswith(("lstm", "blocks"))
        parameters[case.optimizer == "muon" and is_hidden_matrix].append(parameter)
    adamw = torch.optim.AdamW(parameters[False], lr=4e-3, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    if case.optimizer != "muon":
        return [adamw]
    if implementation in ("torch_blocks", "torch_layers"):
        return [adamw, MuonPerBlock(parameters[True], lr=0.02, blocks=4 if case.model == "lstm" else 1)]
    return [adamw, torch.optim.Muon(parameters[True], lr=0.02, weight_decay=0.0)]


def random_windows(ids, case: Case):
    """Draw a batch `(x, y)`."""
    starts = torch.randint(len(ids) - case.sequence_length, (case.batch_size,)).tolist()
    windows = [torch.from_numpy(ids[n : n + case.sequence_length + 1].astype("int64")) for n in starts]
    windows = torch.stack(windows).to(DEVICE)
    return windows[:, :-1], windows[:, 1:]


def warmup_and_linear(step: int) -> float:
    """Return the factor of the learning rate of `experiments.compare`."""
    return min((step + 1) / 50, max(0.02, 1 - step / STEPS))


def warmup_and_cosine(step: int, total_steps: int = STEPS) -> float:
    """Return the factor of the learning rate of nanoGPT."""
    warmup = warmup_steps(total_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * min(1.0, (step - warmup) / (total_steps - warmup))))


def training_loop(case, model, optimizers, batches, schedules=(), log_every=NEVER, checkpoint_every=NEVER):
    """Return `(run_steps, info)` of training on batches, with gradients clipped to norm 1."""
    autocast = torch.autocast(DEVICE, torch.bfloat16, enabled=case.precision == "bfloat16")
    compiles = DEVICE == "cuda" and not isinstance(model, LSTM)  # as nanoGPT; cuDNN's LSTM is one operation
    forward = torch.compile(model) if compiles else model
    if isinstance(model, LSTM) and case.precision == "bfloat16" and not HAS_BFLOAT16:
        torch.backends.mkldnn.enabled = False  # its LSTM refuses bfloat16 there; PyTorch's own does not
    loss_sum, step = torch.zeros((), device=DEVICE), 0

    def run_steps(num_steps):
        nonlocal step
        for x, y in itertools.islice(batches, num_steps):
            step += 1
            with autocast:
                logits = forward(x)
            loss = cross_entropy(logits, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            for schedule in schedules:
                schedule.step()
            loss_sum.add_(loss.detach())
            if step % log_every == 0:
                print(f"step {step}: loss {loss_sum.item() / log_every:.4f}")
                loss_sum.zero_()
            if step % checkpoint_every == 0:
                with tempfile.TemporaryFile() as file:
                    torch.save([part.state_dict() for part in (model, *optimizers)], file)
        wait()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    return run_steps, {"tokens_per_step": case.tokens_per_step, "parameters": parameters}
