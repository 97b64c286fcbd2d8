"""Prepare what a worker times in PyTorch without Keras, `(run_steps, info)` of a case as in `keras_runs`.

Models are torch's own modules in the usual way; the model "gpt2" and its training follow train.py of nanoGPT (Karpathy,
2022, MIT license, github.com/karpathy/nanoGPT). bfloat16 is `torch.autocast` with float32 weights, as in keras_seq.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import torch
from torch import nn

from experiments.benchmark.cases import Case
from experiments.benchmark.text import LEARNING_RATE, STEPS, Text, warmup_steps

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
HAS_BFLOAT16 = ON_GPU or torch.ops.mkldnn._is_mkldnn_bf16_supported()
NEVER = 10**9
if ON_GPU:
    torch.set_float32_matmul_precision("high")  # TF32, JAX's default for float32


def gradients(function):
    """Return a function from arrays to the gradients of the sum of squares of `function(*arrays)`."""

    def gradients(*arrays):
        arrays = [array.detach().requires_grad_() for array in arrays]
        return torch.autograd.grad(function(*arrays).float().square().sum(), arrays)

    return gradients


def wait():
    """Wait until all arrays are computed."""
    if ON_GPU:
        torch.cuda.synchronize()


def device() -> tuple[str, str]:
    """Return the platform, "cpu" or "gpu", and the name of the device."""
    return ("gpu", torch.cuda.get_device_name()) if ON_GPU else ("cpu", "cpu")


def peak_bytes() -> int | None:
    """Return the peak memory of the GPU; None on a CPU."""
    return torch.cuda.max_memory_allocated() if ON_GPU else None


# Models


class LSTM(nn.Module):
    """LSTM language model: embedding, nn.LSTM, head."""

    def __init__(self, case: Case):
        super().__init__()
        self.embedding = nn.Embedding(case.vocabulary_size, case.embedding_dim)
        self.lstm = nn.LSTM(case.embedding_dim, case.units, case.num_layers, batch_first=True)
        self.head = nn.Linear(case.units, case.vocabulary_size)

    def forward(self, ids):
        return self.step(ids)[0]

    def step(self, ids, state=None):
        y, state = self.lstm(self.embedding(ids), state)
        return self.head(y), state


class Block(nn.Module):
    """Transformer block of nanoGPT: pre-norm, scaled_dot_product_attention, GELU; with biases, GPT-2's."""

    def __init__(self, width, heads, bias, dropout):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.first, self.second = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.attention, self.projection = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
        wide, narrow = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)
        self.feed_forward = nn.Sequential(wide, nn.GELU(approximate="tanh" if bias else "none"), narrow)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.attention(self.first(x)).split(width, dim=2))
        rate = self.rate if self.training else 0.0
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        x = x + self.dropout(self.projection(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.feed_forward(self.second(x)))


class GPT(nn.Module):
    """GPT language model: embeddings of ids and positions, blocks, norm, and a head tied to the embedding of ids."""

    def __init__(self, case: Case, bias: bool = True):
        super().__init__()
        self.tokens = nn.Embedding(case.vocabulary_size, case.embedding_dim)
        self.positions = nn.Embedding(case.sequence_length, case.embedding_dim)
        self.dropout = nn.Dropout(case.dropout) if case.dropout else nn.Identity()
        blocks = (Block(case.embedding_dim, case.num_heads, bias, case.dropout) for _ in range(case.num_layers))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(case.embedding_dim, bias=bias)

    def forward(self, ids, last_only=False):
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(self.blocks(self.dropout(self.tokens(ids) + positions)))
        return nn.functional.linear(x[:, -1:] if last_only else x, self.tokens.weight)


class RotaryBlock(nn.Module):
    """Transformer block of `experiments.compare`: RMS normalization, also of queries and keys, and rotary positions."""

    def __init__(self, case: Case):
        super().__init__()
        width, self.shape = case.embedding_dim, (case.num_heads, case.embedding_dim // case.num_heads)
        self.first, self.second = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.query_norm, self.key_norm = (nn.RMSNorm(self.shape[1], eps=1e-6) for _ in range(2))
        self.attention, self.projection = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False)
        wide, narrow = nn.Linear(width, 4 * width, False), nn.Linear(4 * width, width, False)
        self.feed_forward = nn.Sequential(wide, nn.GELU(), narrow)
        frequencies = 10_000.0 ** (-2 * torch.arange(self.shape[1] // 2) / self.shape[1])
        angles = torch.outer(torch.arange(case.sequence_length), frequencies)[:, None]  # [T, 1, K / 2]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x):
        a, b = x.chunk(2, dim=-1)
        cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, self.shape) for part in self.attention(self.first(x)).chunk(3, dim=-1))
        q, k = self.rotate(self.query_norm(q)), self.rotate(self.key_norm(k))
        heads = (part.transpose(1, 2) for part in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).flatten(-2))
        return x + self.feed_forward(self.second(x))


class Transformer(nn.Module):
    """The Transformer of `experiments.compare`: embedding, blocks, norm, head."""

    def __init__(self, case: Case):
        super().__init__()
        self.embedding = nn.Embedding(case.vocabulary_size, case.embedding_dim)
        self.blocks = nn.Sequential(*(RotaryBlock(case) for _ in range(case.num_layers)))
        self.norm = nn.RMSNorm(case.embedding_dim, eps=1e-6)
        self.head = nn.Linear(case.embedding_dim, case.vocabulary_size, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embedding(ids))))


def initialize_as_nanogpt(model: GPT):
    """Draw all weights from a normal distribution with deviation 0.02, less before the residual stream."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            is_residual = name.endswith(("projection.weight", "feed_forward.2.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * len(model.blocks)) if is_residual else 0.02)


# What is timed


def prepare(case: Case, implementation: str):
    """Return `(run_steps, info)` of a case."""
    if case.model == "attention":
        return attention(case)
    kinds = {"as_run": text_training, "nanogpt": text_training, "generation": generation}
    kinds["exports"] = lstm_generation if case.model == "lstm" else generation
    return kinds.get(case.kind, training_steps)(case)


def training_steps(case: Case):
    """Prepare training steps on one batch, with AdamW."""
    model = (LSTM if case.model == "lstm" else GPT)(case).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    batch = torch.randint(case.vocabulary_size, (2, case.batch_size, case.sequence_length)).to(DEVICE)
    return training_loop(case, model, [optimizer], itertools.repeat(batch))


def text_training(case: Case):
    """Prepare the training of `experiments.compare` at its defaults, or nanoGPT's."""
    text, total_steps = Text(case), case.steps or STEPS
    sized = dataclasses.replace(case, vocabulary_size=text.vocabulary_size)
    torch.manual_seed(1337)
    if case.model == "gpt2":
        model = GPT(sized, bias=False).to(DEVICE)
        initialize_as_nanogpt(model)
        optimizers, factor = [_nanogpt_optimizer(model)], warmup_and_cosine
    else:
        model = (LSTM if case.model == "lstm" else Transformer)(sized).to(DEVICE)
        optimizers, factor = _optimizers(model, case), warmup_and_linear
    factor = functools.partial(factor, total_steps=total_steps)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    batches = (_on_device(text.random_windows.batch(step)) for step in itertools.count())
    run_steps, info = training_loop(case, model, optimizers, batches, schedules, log_every=25)

    @torch.no_grad()
    def validate():
        model.eval()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=case.precision == "bfloat16"):
            parts = (torch.from_numpy(part).split(case.batch_size) for part in text.validation_windows)
            losses = [cross_entropy(model(x.to(DEVICE)), y.long().to(DEVICE)) for x, y in zip(*parts, strict=True)]
        model.train()
        return {"val_loss": torch.stack(losses).mean().item()}

    return run_steps, {**info, **({"validate": validate} if case.steps else {})}


def attention(case: Case):
    """Prepare forward and backward passes of causal attention alone, on q, k and v `[B, H, T, K]`."""
    shape = (3, case.batch_size, case.sequence_length, case.num_heads, case.embedding_dim // case.num_heads)
    arrays = torch.from_numpy(np.random.default_rng(0).standard_normal(shape)).transpose(2, 3)
    q, k, v = arrays.to(DEVICE, getattr(torch, case.precision)).contiguous()
    step = gradients(lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def run_steps(num_steps):
        for _ in range(num_steps):
            result = step(q, k, v)
        wait()
        return result

    return run_steps, {"tokens_per_step": case.tokens_per_step}


def generation(case: Case):
    """Prepare nanoGPT's sampling of a token after each of the case's prefixes, all of which it computes again."""
    model = GPT(case).to(DEVICE).eval()
    prefixes = [torch.zeros((case.batch_size, length), dtype=torch.long).to(DEVICE) for length in case.prefix_lengths]

    @torch.no_grad()
    def run_steps(num_steps):
        for ids in num_steps * prefixes:
            probabilities = torch.softmax(model(ids, last_only=True)[:, -1], dim=-1)
            torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
        wait()

    return run_steps, {"tokens_per_step": case.batch_size * len(prefixes)}


def lstm_generation(case: Case):
    """Prepare the sampling of a text by an LSTM, whose state is carried from token to token."""
    model = LSTM(case).to(DEVICE).eval()

    @torch.no_grad()
    def run_steps(num_steps):
        for _ in range(num_steps):
            ids, state = torch.ones((case.batch_size, 1), dtype=torch.long, device=DEVICE), None
            for _ in range(case.sequence_length - 1):
                logits, state = model.step(ids, state)
                ids = torch.multinomial(torch.softmax(logits[:, -1], dim=-1), 1)
        wait()

    return run_steps, {"tokens_per_step": case.batch_size * (case.sequence_length - 1)}


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


def _optimizers(model, case: Case):
    """Return AdamW; or Muon for the hidden matrices, and AdamW for all other weights."""
    parameters = {True: [], False: []}
    for path, parameter in model.named_parameters():
        is_hidden_matrix = parameter.ndim == 2 and path.startswith(("lstm", "blocks"))
        parameters[case.optimizer == "muon" and is_hidden_matrix].append(parameter)
    adamw = torch.optim.AdamW(parameters[False], lr=4e-3, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    muon = [torch.optim.Muon(parameters[True], lr=0.02, weight_decay=0.0)] if parameters[True] else []
    return [adamw, *muon]


def warmup_and_linear(step: int, total_steps: int) -> float:
    """Return the factor of the learning rate of `experiments.compare`."""
    return min((step + 1) / 50, max(0.02, 1 - step / total_steps))


def warmup_and_cosine(step: int, total_steps: int) -> float:
    """Return the factor of the learning rate of nanoGPT."""
    warmup = warmup_steps(total_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * min(1.0, (step - warmup) / (total_steps - warmup))))


def training_loop(case, model, optimizers, batches, schedules=(), log_every=NEVER):
    """Return `(run_steps, info)` of training on batches, with gradients clipped to norm 1."""
    autocast = torch.autocast(DEVICE, torch.bfloat16, enabled=case.precision == "bfloat16")
    compiles = ON_GPU and not isinstance(model, LSTM)  # as nanoGPT; cuDNN's LSTM is one operation
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
        wait()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    return run_steps, {"tokens_per_step": case.tokens_per_step, "parameters": parameters}
