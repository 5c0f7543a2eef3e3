"""Bi-encoders and rerankers in onnxruntime and OpenVINO at their best: attention, GELU and LayerNorm fused, pooling inside the graph, texts of similar length together.

A directory `model` is exported once into `model/onnx.onnx`, and before onnxruntime's optimizer into `model/plain.onnx`, which OpenVINO reads and fuses itself; bench/compare_sentence_transformers.py,
bench/compare_serve.py, bench/compare_latency.py and bench/compare_predict.py run it.
"""

import pathlib
import sys

INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
FILE = "onnx.onnx"
PLAIN_FILE = "plain.onnx"
OUTPUT = "output"


def similar_lengths(texts, size):
    """Indices of texts, of similar lengths together: the least padding."""
    order = sorted(range(len(texts)), key=lambda i: len("".join(texts[i])))
    return [order[i : i + size] for i in range(0, len(order), size)]


def with_pooling(encoder):
    """A module from tokens to the mean of the hidden states of real tokens."""
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, input_ids, attention_mask, token_type_ids):
            states = self.encoder(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
            mask = attention_mask.unsqueeze(-1).to(states.dtype)
            return (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)

    return Pooled()


def export(folder, heads, hidden, is_reranker):
    import torch
    import transformers
    from onnxruntime.transformers import optimizer

    kind = transformers.BertForSequenceClassification if is_reranker else transformers.BertModel
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    if not is_reranker:
        model = with_pooling(model)
    sample = tuple(torch.ones((2, 16), dtype=torch.int64) for _ in INPUTS)
    axes = {**{name: {0: "batch", 1: "tokens"} for name in INPUTS}, OUTPUT: {0: "batch"}}
    plain = str(pathlib.Path(folder) / PLAIN_FILE)
    torch.onnx.export(model, sample, plain, input_names=list(INPUTS), output_names=[OUTPUT], dynamic_axes=axes, dynamo=False)
    fused = optimizer.optimize_model(plain, model_type="bert", num_heads=heads, hidden_size=hidden, opt_level=1)
    print("onnxruntime fused", fused.get_fused_operator_statistics(), file=sys.stderr)
    fused.save_model_to_file(str(pathlib.Path(folder) / FILE))


def tokenizer_of(folder, max_tokens):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()
    return tokenizer


def inputs_of(tokenizer, texts):
    import numpy as np

    encoded = tokenizer.encode_batch(texts)
    return {name: np.array([getattr(e, field) for e in encoded], dtype=np.int64) for name, field in INPUTS.items()}


class Model:
    """Outputs of the exported model for texts, or for pairs of texts."""

    def __init__(self, folder, threads, max_tokens, file=FILE):
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(pathlib.Path(folder) / file), settings, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizer_of(folder, max_tokens)

    def batch(self, texts):
        return self.session.run([OUTPUT], inputs_of(self.tokenizer, texts))[0]

    def __call__(self, texts, size):
        import numpy as np

        parts = similar_lengths(texts, size)
        found = np.concatenate([self.batch([texts[i] for i in part]) for part in parts])
        ordered = np.empty_like(found)
        ordered[[i for part in parts for i in part]] = found
        return ordered


class OpenVinoModel:
    """The same in OpenVINO, a batch at a time; kind: f32 or bf16, of what the file does not have in int8."""

    def __init__(self, folder, threads, max_tokens, kind, file=PLAIN_FILE):
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": kind}
        self.request = openvino.compile_model(str(pathlib.Path(folder) / file), "CPU", settings).create_infer_request()
        self.tokenizer = tokenizer_of(folder, max_tokens)

    def batch(self, texts):
        return self.request.infer(inputs_of(self.tokenizer, texts))[0]
