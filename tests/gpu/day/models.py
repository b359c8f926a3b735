"""Real models from a config, with random weights: each is measured, and the day counts its recording by hand (counts.py).

Not collected with the other tests: pytest tests/gpu/day/models.py. Skipped is what needs a package that is not there.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

QUICK = bool(os.environ.get("DAY_QUICK"))
BF16 = torch.bfloat16
WIDTH, LAYERS, LENGTH = (256, 2, 32) if QUICK else (2048, 4, 512)
WORDS = 8000

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
    pytest.mark.torchprof(device="cuda", warmup=2, steps=2, min_kernels=1, record=["stacks", "memory"]),
]


@pytest.fixture(autouse=True)
def _of_its_own():
    """What a test compiles and allocates is not another one's."""
    torch.manual_seed(0)
    yield
    torch.compiler.reset()
    torch.cuda.empty_cache()


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture
def models():
    """Return torchvision's models."""
    return pytest.importorskip("torchvision.models")


def tokens(batch=2, length=LENGTH):
    return torch.randint(0, WORDS, (batch, length), device="cuda")


def llama(transformers, attention="sdpa", dtype=BF16):
    config = transformers.LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=WIDTH // 64,
        num_key_value_heads=WIDTH // 128,
        vocab_size=WORDS,
        max_position_embeddings=2048,
    )
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).to("cuda", dtype)


def step_of_training(model, batch, optimizer, *, autocast=False):
    """Return one step, of which a loop asks the loss."""

    def step():
        with torch.autocast("cuda", BF16, enabled=autocast):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


@torch.no_grad()
def test_llama_reads(torchprof, transformers):
    torchprof(llama(transformers).eval(), tokens())


@torch.no_grad()
def test_llama_reads_with_attention_written_out(torchprof, transformers):
    torchprof(llama(transformers, "eager", torch.float32).eval(), tokens())


@torch.no_grad()
def test_llama_reads_compiled(torchprof, transformers):
    torchprof(torch.compile(llama(transformers).eval()), tokens())


@torch.no_grad()
@pytest.mark.real_gpu("the loop asks whether it is done, which the simulated one never is")
@pytest.mark.parametrize("sampled", [False, True])
def test_llama_writes(torchprof, transformers, sampled):
    model, start = llama(transformers).eval(), tokens(1, 16)
    how = {"do_sample": True, "top_k": 50, "top_p": 0.9} if sampled else {"do_sample": False}
    torchprof(lambda: model.generate(start, max_new_tokens=6, min_new_tokens=6, pad_token_id=0, **how))


@torch.no_grad()
def test_llama_writes_in_a_graph(torchprof, transformers):
    model = torch.compile(llama(transformers).eval(), mode="reduce-overhead", fullgraph=True)
    token = tokens(4, 1)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        return model(token, use_cache=False).logits.argmax(-1)

    torchprof(step)


def test_llama_is_trained(torchprof, transformers):
    model = llama(transformers)
    torchprof(step_of_training(model, tokens(), torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)))


def test_llama_is_trained_with_checkpoints(torchprof, transformers):
    model = llama(transformers)
    model.gradient_checkpointing_enable()
    model.train()
    torchprof(step_of_training(model, tokens(), torch.optim.SGD(model.parameters(), lr=1e-4)))


def test_llama_is_trained_compiled_in_two_precisions(torchprof, transformers):
    model = llama(transformers, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torchprof(step_of_training(torch.compile(model), tokens(), optimizer, autocast=True))


def test_gpt2_is_trained(torchprof, transformers):
    config = transformers.GPT2Config(n_layer=LAYERS, n_embd=WIDTH // 2, n_head=WIDTH // 128, vocab_size=WORDS)
    model = transformers.GPT2LMHeadModel(config).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    torchprof(step_of_training(model, tokens(), optimizer, autocast=True))


@torch.no_grad()
def test_bert_reads_what_is_masked(torchprof, transformers):
    config = transformers.BertConfig(
        num_hidden_layers=LAYERS, hidden_size=WIDTH // 2, num_attention_heads=WIDTH // 128, intermediate_size=WIDTH
    )
    model, batch = transformers.BertModel(config).to("cuda", torch.float16).eval(), tokens(8, 128)
    mask = torch.ones_like(batch)
    mask[:, 100:] = 0
    torchprof(lambda: model(batch, attention_mask=mask))


@torch.no_grad()
def test_t5_reads_and_writes(torchprof, transformers):
    config = transformers.T5Config(num_layers=2, d_model=512, d_ff=1024, vocab_size=WORDS)
    model, batch = transformers.T5ForConditionalGeneration(config).to("cuda", BF16).eval(), tokens(4, 64)
    torchprof(lambda: model(input_ids=batch, decoder_input_ids=batch[:, :16]))


@torch.no_grad()
def test_whisper_listens(torchprof, transformers):
    heads = {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
    config = transformers.WhisperConfig(encoder_layers=2, decoder_layers=2, d_model=384, **heads)
    model = transformers.WhisperModel(config).to("cuda", torch.float16).eval()
    sound = torch.randn(1, 80, 3000, device="cuda", dtype=torch.float16)
    words = torch.ones(1, 4, dtype=torch.long, device="cuda")
    torchprof(lambda: model(input_features=sound, decoder_input_ids=words))


@torch.no_grad()
def test_mixtral_reads(torchprof, transformers):
    config = transformers.MixtralConfig(
        num_hidden_layers=2,
        hidden_size=WIDTH // 4,
        intermediate_size=WIDTH // 2,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_local_experts=4,
        vocab_size=WORDS,
    )
    torchprof(transformers.MixtralForCausalLM(config).to("cuda", BF16).eval(), tokens(2, 64))


@torch.no_grad()
def test_mamba_reads(torchprof, transformers):
    config = transformers.MambaConfig(num_hidden_layers=1, hidden_size=256, vocab_size=WORDS)
    torchprof(transformers.MambaForCausalLM(config).to("cuda").eval(), tokens(2, 32))


@torch.no_grad()
def test_vit_looks(torchprof, transformers):
    heads = {"num_attention_heads": 6, "intermediate_size": 1536}
    config = transformers.ViTConfig(num_hidden_layers=LAYERS, hidden_size=384, **heads)
    model = transformers.ViTModel(config).to("cuda", torch.float16).eval()
    torchprof(model, torch.randn(8, 3, 224, 224, device="cuda", dtype=torch.float16))


@pytest.mark.real_gpu("the simulated one has no batch norm of cuDNN's")
def test_resnet_is_trained(torchprof, models, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    model = models.resnet50().to("cuda", memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", BF16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    torchprof(step)


@torch.no_grad()
@pytest.mark.real_gpu("the simulated one has no batch norm of cuDNN's")
def test_resnet_looks_at_images_that_are_not_channels_last(torchprof, models):
    model = models.resnet50().to("cuda", torch.float16).eval()
    torchprof(model, torch.randn(8, 3, 224, 224, device="cuda", dtype=torch.float16))


def test_a_graph_network_is_trained(torchprof):
    convolution = pytest.importorskip("torch_geometric.nn").GCNConv
    first, second = convolution(64, 128).to("cuda"), convolution(128, 16).to("cuda")
    x, edges = torch.randn(5000, 64, device="cuda"), torch.randint(0, 5000, (2, 40000), device="cuda")
    torchprof(lambda: second(first(x, edges).relu(), edges).sum().backward())


@pytest.mark.real_gpu("the simulated one has no recurrent networks of cuDNN's")
def test_an_lstm_is_trained(torchprof):
    model = nn.LSTM(256, 256, 2, batch_first=True).to("cuda")
    x = torch.randn(32, 64, 256, device="cuda")
    torchprof(lambda: model(x)[0].sum().backward())


def test_batches_are_loaded_from_pinned_memory(torchprof):
    data = torch.utils.data.TensorDataset(torch.randn(256, 1024), torch.randint(0, 10, (256,)))
    model = nn.Linear(1024, 10).to("cuda")

    def epoch():
        for x, label in torch.utils.data.DataLoader(data, 64, pin_memory=True):
            predicted = model(x.to("cuda", non_blocking=True))
            nn.functional.cross_entropy(predicted, label.to("cuda", non_blocking=True)).backward()

    torchprof(epoch)


def test_products_on_two_streams(torchprof):
    one, other = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    side = torch.cuda.Stream()

    def step():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            beside = one @ one
        here = other @ other
        torch.cuda.current_stream().wait_stream(side)
        return beside + here

    torchprof(step)


def test_a_product_of_fp8(torchprof):
    x = torch.randn(1024, 1024, device="cuda").to(torch.float8_e4m3fn)
    scale = torch.ones((), device="cuda")
    torchprof(lambda: torch._scaled_mm(x, x.t(), scale, scale, out_dtype=BF16))


def test_flex_attention(torchprof):
    from torch.nn.attention.flex_attention import flex_attention

    attend = torch.compile(flex_attention)
    q = torch.randn(2, 8, 1024, 64, device="cuda", dtype=BF16)
    torchprof(lambda: attend(q, q, q, score_mod=lambda score, _batch, _head, i, j: score + (i - j)))


def test_sorting_and_searching(torchprof):
    x = torch.randn(4096, 4096, device="cuda")
    torchprof(lambda: (x.topk(10), x.sort(), x.cumsum(0), torch.where(x > 0), x[x > 1].sum(), x[:4].int().unique()))


@pytest.mark.real_gpu("the simulated one has no cuFFT and no cuSOLVER")
def test_fft_and_linear_algebra(torchprof):
    x = torch.randn(256, 256, device="cuda")
    positive = x @ x.T + 300 * torch.eye(256, device="cuda")
    torchprof(
        lambda: (torch.fft.fft2(x), torch.linalg.svdvals(x), torch.linalg.solve(x, x), torch.linalg.cholesky(positive))
    )
