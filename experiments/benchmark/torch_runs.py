"""Prepare what a worker times in PyTorch without Keras, `(run_steps, info)` of a case as in `keras_runs`.

bfloat16 is `torch.autocast` with float32 weights, as in keras_seq.
Generation is nanoGPT's (Karpathy, 2022): the whole prefix is recomputed for every token.
"""

import itertools

import numpy as np
import torch
from torch import nn

from experiments.benchmark import torch_side as side
from experiments.benchmark import torch_training
from experiments.benchmark.case import Case
from experiments.benchmark.torch_models import GPT, LSTM
from experiments.benchmark.torch_side import DEVICE

MODELS = {"lstm": LSTM, "transformer": GPT}


def prepare(case: Case, implementation: str):
    """Return `(run_steps, info)` of a case."""
    if case.model == "attention":
        return attention(case)
    if case.kind == "nanogpt":
        return torch_training.nanogpt(case)
    if case.kind == "as_run":
        return torch_training.prepare(case, implementation)
    return generation(case) if case.kind == "generation" else training_steps(case)


def training_steps(case: Case):
    """Prepare training steps on one batch, with AdamW."""
    model = MODELS[case.model](case).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    batch = torch.randint(case.vocabulary_size, (2, case.batch_size, case.sequence_length)).to(DEVICE)
    return torch_training.training_loop(case, model, [optimizer], itertools.repeat(batch))


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

    return run_steps, {"tokens_per_step": case.tokens_per_step}


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
