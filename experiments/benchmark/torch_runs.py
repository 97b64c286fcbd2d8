"""Prepare what a worker times in PyTorch without Keras, `(run_steps, info)` of a case as in `keras_runs`.

The models use torch's own modules in the usual way. bfloat16 is `torch.autocast` with float32 weights, as in keras_seq.
Generation is nanoGPT's (Karpathy, 2022): the whole prefix is recomputed for every token.
"""

import itertools

import numpy as np
import torch
from torch import nn

from experiments.benchmark import torch_side as side
from experiments.benchmark.settings import Case

DEVICE = "cuda" if side.ON_GPU else "cpu"


class LSTM(nn.Module):
    """LSTM language model: embedding, nn.LSTM, head."""

    def __init__(self, case: Case):
        super().__init__()
        self.embedding = nn.Embedding(case.vocabulary_size, case.embedding_dim)
        self.lstm = nn.LSTM(case.embedding_dim, case.units, case.num_layers, batch_first=True)
        self.head = nn.Linear(case.units, case.vocabulary_size)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0])


class Block(nn.Module):
    """Transformer block of nanoGPT: pre-norm, scaled_dot_product_attention, GELU."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.attention(self.first(x)).split(width, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.second(x))


class GPT(nn.Module):
    """GPT language model: embeddings of ids and positions, blocks, norm, and a head tied to the embedding of ids."""

    def __init__(self, case: Case):
        super().__init__()
        self.tokens = nn.Embedding(case.vocabulary_size, case.embedding_dim)
        self.positions = nn.Embedding(case.sequence_length, case.embedding_dim)
        self.blocks = nn.Sequential(*(Block(case.embedding_dim, case.num_heads) for _ in range(case.num_layers)))
        self.norm = nn.LayerNorm(case.embedding_dim)

    def forward(self, ids, last_only=False):
        x = self.norm(self.blocks(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))))
        return nn.functional.linear(x[:, -1:] if last_only else x, self.tokens.weight)


MODELS = {"lstm": LSTM, "transformer": GPT}


def prepare(case: Case, implementation: str):
    """Return `(run_steps, info)` of a case."""
    if case.model == "attention":
        return attention(case)
    return generation(case) if case.kind == "generation" else training_steps(case)


def training_steps(case: Case):
    """Prepare training steps: on one batch, or end to end on windows drawn as by nanoGPT."""
    model = MODELS[case.model](case).to(DEVICE)
    optimizers = _optimizers(model, case.optimizer)
    ids = torch.randint(case.vocabulary_size, (1_000_000,))
    autocast = torch.autocast(DEVICE, torch.bfloat16, enabled=case.precision == "bfloat16")

    def batch():
        starts = torch.randint(len(ids) - case.sequence_length, (case.batch_size,)).tolist()
        windows = torch.stack([ids[start : start + case.sequence_length + 1] for start in starts]).to(DEVICE)
        return windows[:, :-1], windows[:, 1:]

    batches = iter(batch, None) if case.kind == "end_to_end" else itertools.repeat(batch())

    def run_steps(num_steps):
        for x, y in itertools.islice(batches, num_steps):
            with autocast:
                logits = model(x)
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        side.wait()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    return run_steps, {"tokens_per_step": case.batch_size * case.sequence_length, "parameters": parameters}


def _optimizers(model, name):
    """Return AdamW; or Muon for the hidden matrices, and AdamW for all other weights."""
    parameters = {True: [], False: []}
    for path, parameter in model.named_parameters():
        is_hidden_matrix = parameter.ndim == 2 and path.startswith(("lstm", "blocks"))
        parameters[name == "muon" and is_hidden_matrix].append(parameter)
    adamw = torch.optim.AdamW(parameters[False], lr=1e-3, weight_decay=0.0, fused=True)
    return [adamw, torch.optim.Muon(parameters[True], weight_decay=0.0)] if name == "muon" else [adamw]


def attention(case: Case):
    """Prepare forward and backward passes of causal attention alone, on q, k and v `[B, H, T, K]`."""
    shape = (3, case.batch_size, case.sequence_length, case.num_heads, case.embedding_dim // case.num_heads)
    arrays = torch.from_numpy(np.random.default_rng(0).standard_normal(shape)).transpose(2, 3)
    q, k, v = arrays.to(DEVICE, getattr(torch, case.precision)).contiguous()
    step = side.gradients(lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def run_steps(num_steps):
        for _ in range(num_steps):
            gradients = step(q, k, v)
        side.wait()
        return gradients

    return run_steps, {"tokens_per_step": case.batch_size * case.sequence_length}


def generation(case: Case):
    """Prepare the sampling of one token after each of the case's prefixes."""
    model = GPT(case).to(DEVICE).eval()
    prefixes = [torch.zeros((case.batch_size, length), dtype=torch.long).to(DEVICE) for length in case.prefix_lengths]

    @torch.no_grad()
    def run_steps(num_steps):
        for ids in num_steps * prefixes:
            probabilities = torch.softmax(model(ids, last_only=True)[:, -1], dim=-1)
            torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
        side.wait()

    return run_steps, {"tokens_per_step": case.batch_size * len(prefixes)}
