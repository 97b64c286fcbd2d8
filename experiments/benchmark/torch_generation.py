"""Measure text generation with nanoGPT's method on PyTorch: the whole prefix is recomputed for every character.

    python -m experiments.benchmark.torch_generation --batch-size 1 --max-new-tokens 1000

Run by `experiments.benchmark.generation` in a process of its own; prints the characters per second as JSON. The model is
nanoGPT's (Karpathy, 2022), written with torch's own modules; its weights are random, since only the time is measured.
"""

import dataclasses
import json
import statistics
import time

import tyro


@dataclasses.dataclass(frozen=True)
class TorchGenerationConfig:
    """Set the sizes of the measurement; all lengths are in characters."""

    batch_size: int = 1
    max_new_tokens: int = 1000
    context_length: int = 1024
    vocabulary_size: int = 65
    num_layers: int = 4
    num_heads: int = 4
    embedding_dim: int = 128
    repeats: int = 3


def build_gpt(config: TorchGenerationConfig):
    """Build a GPT with tied embeddings, in evaluation mode."""
    import torch
    from torch import nn

    from experiments.benchmark.torch_worker import Block

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(config.vocabulary_size, config.embedding_dim)
            self.positions = nn.Embedding(config.context_length, config.embedding_dim)
            self.blocks = nn.Sequential(
                *(Block(config.embedding_dim, config.num_heads) for _ in range(config.num_layers))
            )
            self.normalization = nn.LayerNorm(config.embedding_dim)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            x = self.normalization(self.blocks(x))
            return x[:, -1] @ self.tokens.weight.T  # as in nanoGPT, logits of the last position only

    return GPT().eval()


def measure_seconds(config: TorchGenerationConfig) -> list[float]:
    """Time each repetition of nanoGPT's `generate`, after a short warm-up."""
    import torch

    gpt = build_gpt(config)

    @torch.no_grad()
    def generate(max_new_tokens):
        ids = torch.zeros((config.batch_size, 1), dtype=torch.long)
        for _ in range(max_new_tokens):
            logits = gpt(ids[:, -config.context_length :])
            ids = torch.cat([ids, torch.multinomial(torch.softmax(logits, dim=-1), 1)], dim=1)

    generate(min(20, config.max_new_tokens))
    times = []
    for _ in range(config.repeats):
        start_time = time.perf_counter()
        generate(config.max_new_tokens)
        times.append(time.perf_counter() - start_time)
    return times


if __name__ == "__main__":
    config = tyro.cli(TorchGenerationConfig)
    characters = config.batch_size * config.max_new_tokens
    print(json.dumps({"characters_per_second": characters / statistics.median(measure_seconds(config))}))
