"""Run the PyTorch implementation of `experiments.benchmark`, as a worker process without TensorFlow.

The models use torch's own modules in the usual way. Started from this file by `experiments.benchmark.workers`, and by
`experiments.benchmark.gpu_workers` with `"device": "cuda"`. bfloat16 is `torch.autocast` with float32 weights, as in keras_seq.
A timed run ends when the GPU has finished.
"""

import json
import resource
import sys
import time

import torch
from torch import nn


class LSTM(nn.Module):
    """LSTM language model: embedding, nn.LSTM, head."""

    def __init__(self, case):
        super().__init__()
        self.embedding = nn.Embedding(case["vocabulary_size"], case["embedding_dim"])
        self.lstm = nn.LSTM(case["embedding_dim"], case["units"], case["num_layers"], batch_first=True)
        self.head = nn.Linear(case["units"], case["vocabulary_size"])

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

    def __init__(self, case):
        super().__init__()
        width = case["embedding_dim"]
        self.tokens = nn.Embedding(case["vocabulary_size"], width)
        self.positions = nn.Embedding(case["sequence_length"], width)
        self.blocks = nn.Sequential(*(Block(width, case["num_heads"]) for _ in range(case["num_layers"])))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return nn.functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


def training_step(case, device):
    """Return a function that runs one training step.

    Args:
        case: The fields of a `Case`, a dict.
        device: `"cpu"` or `"cuda"`.
    """
    model = {"lstm": LSTM, "transformer": GPT}[case["kind"]](case).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    shape = (2, case["batch_size"], case["sequence_length"])
    x, y = torch.randint(case["vocabulary_size"], shape, device=device)
    autocast = torch.autocast(device, torch.bfloat16, enabled=case["precision"] == "bfloat16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def attention_step(case, device):
    """Return a function that runs causal attention forward and backward.

    Args:
        case: The fields of a `Case`, a dict.
        device: `"cpu"` or `"cuda"`.
    """
    num_heads, sequence_length = case["num_heads"], case["sequence_length"]
    shape = (case["batch_size"], num_heads, sequence_length, case["embedding_dim"] // num_heads)
    dtype = getattr(torch, case["precision"])
    q, k, v = (torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for _ in range(3))

    def step():
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(y.float().square().sum(), (q, k, v))

    return step


def wait(device):
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_megabytes(device) -> float:
    """Return the peak memory in MB: of the GPU, or of the process on a CPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    """Warm up, then time a run for each line on stdin."""
    case = json.loads(sys.argv[1])
    device = case.get("device", "cpu")
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, JAX's default for float32
    step = (attention_step if case["kind"] == "attention" else training_step)(case, device)
    tokens = case["batch_size"] * case["sequence_length"]
    step()
    wait(device)
    start_time = time.perf_counter()
    step()
    wait(device)
    num_steps = max(1, round(case["seconds"] / (time.perf_counter() - start_time)))
    print(json.dumps({"version": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for _ in sys.stdin:
        start_time = time.perf_counter()
        for _ in range(num_steps):
            step()
        wait(device)
        speed = num_steps * tokens / (time.perf_counter() - start_time)
        print(json.dumps({"tokens_per_second": speed, "peak_megabytes": peak_megabytes(device)}), flush=True)


if __name__ == "__main__":
    main()
