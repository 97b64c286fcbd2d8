"""Language models in PyTorch without Keras: torch's own modules in the usual way."""

import math

import torch
from torch import nn

from experiments.benchmark.case import Case


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
