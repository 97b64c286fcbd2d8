"""nanoGPT's way of writing text, on PyTorch: the whole prefix goes through the model for every character.

    python -m experiments.torch_generation --batch-size 1 --length 1000

Run by `experiments.generation_speed` in a process of its own; prints the characters per second as JSON. The model is
nanoGPT's (Karpathy, 2022), written against torch's own modules; its weights are random, for only the time matters.
"""

import dataclasses
import json
import statistics
import time

import tyro


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is measured."""

    batch_size: int = 1
    length: int = 1000
    context: int = 1024
    vocabulary_size: int = 65
    num_layers: int = 4
    num_heads: int = 4
    embedding_dim: int = 128
    repeats: int = 3


def model(sizes: Sizes):
    """A GPT with tied embeddings, in evaluation mode."""
    import torch
    from torch import nn

    from experiments.benchmark_torch import Block

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(sizes.vocabulary_size, sizes.embedding_dim)
            self.positions = nn.Embedding(sizes.context, sizes.embedding_dim)
            self.blocks = nn.Sequential(*(Block(sizes.embedding_dim, sizes.num_heads) for _ in range(sizes.num_layers)))
            self.normalization = nn.LayerNorm(sizes.embedding_dim)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            x = self.normalization(self.blocks(x))
            return x[:, -1] @ self.tokens.weight.T  # nanoGPT, too, takes only the last position to logits here

    return GPT().eval()


def seconds(sizes: Sizes) -> list[float]:
    """The time of each repetition of `generate`, as nanoGPT has it, after a short one to warm up."""
    import torch

    gpt = model(sizes)

    @torch.no_grad()
    def generate(length):
        ids = torch.zeros((sizes.batch_size, 1), dtype=torch.long)
        for _ in range(length):
            logits = gpt(ids[:, -sizes.context :])
            ids = torch.cat([ids, torch.multinomial(torch.softmax(logits, dim=-1), 1)], dim=1)

    generate(min(20, sizes.length))
    times = []
    for _ in range(sizes.repeats):
        begun = time.perf_counter()
        generate(sizes.length)
        times.append(time.perf_counter() - begun)
    return times


if __name__ == "__main__":
    given = tyro.cli(Sizes)
    times = seconds(given)
    print(json.dumps({"characters_per_second": given.batch_size * given.length / statistics.median(times)}))
