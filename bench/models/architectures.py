"""Architectures of torchvision and transformers with seeded random weights, built from their configurations.

`build(name, batch, small)` gives a zoo.Example in f32: a model in eval mode whose one output is a tensor, and its inputs.
`small` shrinks images and sequences, to see on a processor that everything runs."""
import transformers
import torch
import torchvision

import zoo

SEED = 20240


class FirstTensor(torch.nn.Module):
    """Gives one tensor of a model that answers with a dictionary."""

    def __init__(self, model, output):
        super().__init__()
        self.model, self.output = model, output

    def forward(self, image):
        return self.model(image)[self.output]


def vision(name, size=224, small=64, output=None, **options):
    def build(batch, shrunk):
        model = torchvision.models.get_model(name, weights=None, **options).eval()
        side = small if shrunk else size
        model = FirstTensor(model, output).eval() if output else model
        return model, {"image": zoo.images(batch, side)}

    return build


def segmentation(name, size=320):
    return vision(name, size=size, output="out", weights_backbone=None, aux_loss=None)


def text(model_class, config_class, output="last_hidden_state", length=128, mask=True, vocabulary=16384, **config):
    """A language model of a few layers over tokens; encoders also take a mask of the tokens that count."""

    def build(batch, shrunk):
        tokens = 32 if shrunk else length
        config_built = config_class(vocab_size=vocabulary, **config)
        if hasattr(config_built, "use_cache"):
            config_built.use_cache = False
        model = model_class(config_built).eval()
        inputs = {"input_ids": torch.randint(3, vocabulary, (batch, tokens))}
        if mask:
            inputs["attention_mask"] = torch.ones(batch, tokens, dtype=torch.int64)
            inputs["attention_mask"][1:, tokens * 3 // 4:] = 0
        return zoo.OneOutput(model, list(inputs), output).eval(), inputs

    return build


def pixels(model_class, config_class, output="last_hidden_state", size=224, small=64, **config):
    def build(batch, shrunk):
        side = small if shrunk else size
        sized = dict(config, image_size=side) if "image_size" in config else config
        model = model_class(config_class(**sized)).eval()
        return zoo.OneOutput(model, ["pixel_values"], output).eval(), {"pixel_values": zoo.images(batch, side)}

    return build


def whisper_encoder(batch, shrunk):
    config = transformers.WhisperConfig(encoder_layers=4, decoder_layers=1,
                                        max_source_positions=100 if shrunk else 1500)
    encoder = transformers.WhisperModel(config).get_encoder().eval()
    inputs = {"input_features": torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)}
    return zoo.OneOutput(encoder, list(inputs), "last_hidden_state").eval(), inputs


def clip_of_frames(name, frames=16, size=112, small=32):
    def build(batch, shrunk):
        model = torchvision.models.get_model(name, weights=None).eval()
        side = small if shrunk else size
        return model, {"clip": torch.randn(batch, 3, frames, side, side)}

    return build


def speech(model_class, config_class, **config):
    def build(batch, shrunk):
        model = model_class(config_class(**config)).eval()
        samples = torch.randn(batch, 4000 if shrunk else 48000)
        return zoo.OneOutput(model, ["input_values"], "last_hidden_state").eval(), {"input_values": samples}

    return build


def spectrogram(batch, shrunk):
    frames = 128 if shrunk else 512
    model = transformers.ASTModel(transformers.ASTConfig(num_hidden_layers=6, max_length=frames)).eval()
    inputs = {"input_values": torch.randn(batch, frames, model.config.num_mel_bins)}
    return zoo.OneOutput(model, list(inputs), "last_hidden_state").eval(), inputs


BASE = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072}
DECODER = {"hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16, "intermediate_size": 2816,
           "length": 512, "mask": False, "output": "logits"}
GROUPED = DECODER | {"num_key_value_heads": 4}
PATCHES = {"hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "intermediate_size": 1536,
           "image_size": 224}
T = transformers

TORCHVISION = {
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50"),
    "resnext50": vision("resnext50_32x4d"),
    "wide_resnet50": vision("wide_resnet50_2"),
    "regnet_x_800mf": vision("regnet_x_800mf"),
    "regnet_y_400mf": vision("regnet_y_400mf"),
    "densenet121": vision("densenet121"),
    "mnasnet": vision("mnasnet1_0"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "efficientnet_v2_s": vision("efficientnet_v2_s"),
    "convnext_tiny": vision("convnext_tiny"),
    "swin_t": vision("swin_t", small=224),
    "swin_v2_t": vision("swin_v2_t", small=256, size=256),
    "vit_b_16": vision("vit_b_16", small=224),
    "maxvit_t": vision("maxvit_t", small=224),
    "shufflenet_v2": vision("shufflenet_v2_x1_0"),
    "squeezenet": vision("squeezenet1_1"),
    "googlenet": vision("googlenet", init_weights=False, aux_logits=False, transform_input=False),
    "inception_v3": vision("inception_v3", size=299, small=128, init_weights=False, transform_input=False),
    "vgg16": vision("vgg16"),
    "alexnet": vision("alexnet"),
    "deeplabv3_resnet50": segmentation("deeplabv3_resnet50"),
    "deeplabv3_mobilenet": segmentation("deeplabv3_mobilenet_v3_large"),
    "fcn_resnet50": segmentation("fcn_resnet50"),
    "lraspp_mobilenet": vision("lraspp_mobilenet_v3_large", size=320, output="out", weights_backbone=None),
}
TRANSFORMERS = {
    "bert": text(T.BertModel, T.BertConfig, **BASE),
    "distilbert": text(T.DistilBertModel, T.DistilBertConfig, n_layers=6),
    "roberta": text(T.RobertaModel, T.RobertaConfig, **BASE),
    "albert": text(T.AlbertModel, T.AlbertConfig, embedding_size=128, **BASE),
    "electra": text(T.ElectraModel, T.ElectraConfig, embedding_size=128, **BASE),
    "deberta_v2": text(T.DebertaV2Model, T.DebertaV2Config, relative_attention=True, pos_att_type=["p2c", "c2p"],
                       position_buckets=64, share_att_key=True, **(BASE | {"num_hidden_layers": 4})),
    "mpnet": text(T.MPNetModel, T.MPNetConfig, **BASE),
    "gpt2": text(T.GPT2LMHeadModel, T.GPT2Config, output="logits", length=512, mask=False, n_layer=6),
    "gpt_neox": text(T.GPTNeoXForCausalLM, T.GPTNeoXConfig, **DECODER),
    "opt": text(T.OPTForCausalLM, T.OPTConfig, output="logits", length=512, mask=False, hidden_size=1024,
                num_hidden_layers=6, num_attention_heads=16, ffn_dim=4096, word_embed_proj_dim=1024),
    "llama": text(T.LlamaForCausalLM, T.LlamaConfig, **GROUPED),
    "mistral": text(T.MistralForCausalLM, T.MistralConfig, sliding_window=None, **GROUPED),
    "qwen2": text(T.Qwen2ForCausalLM, T.Qwen2Config, **GROUPED),
    "gemma": text(T.GemmaForCausalLM, T.GemmaConfig, head_dim=256, **(GROUPED | {"num_attention_heads": 4,
                                                                                 "num_key_value_heads": 1})),
    "phi": text(T.PhiForCausalLM, T.PhiConfig, **DECODER),
    "t5_encoder": text(T.T5EncoderModel, T.T5Config, d_model=512, num_layers=6, num_heads=8, d_ff=2048),
    "clip_vision": pixels(T.CLIPVisionModel, T.CLIPVisionConfig, patch_size=16, **PATCHES),
    "deit": pixels(T.DeiTModel, T.DeiTConfig, **PATCHES),
    "beit": pixels(T.BeitModel, T.BeitConfig, use_relative_position_bias=True, **PATCHES),
    "segformer": pixels(T.SegformerForSemanticSegmentation, T.SegformerConfig, output="logits", size=256),
    "wav2vec2": speech(T.Wav2Vec2Model, T.Wav2Vec2Config, num_hidden_layers=6),
    "whisper_encoder": whisper_encoder,
    "convnextv2": pixels(T.ConvNextV2Model, T.ConvNextV2Config),
}
MORE = {
    "mobilebert": text(T.MobileBertModel, T.MobileBertConfig, num_hidden_layers=6),
    "squeezebert": text(T.SqueezeBertModel, T.SqueezeBertConfig, **BASE),
    "roformer": text(T.RoFormerModel, T.RoFormerConfig, embedding_size=768, **BASE),
    "esm": text(T.EsmModel, T.EsmConfig, pad_token_id=1, position_embedding_type="rotary", **BASE),
    "xlnet": text(T.XLNetModel, T.XLNetConfig, d_model=768, n_layer=4, n_head=12, d_inner=3072),
    "gpt_neo": text(T.GPTNeoForCausalLM, T.GPTNeoConfig, output="logits", length=512, mask=False, hidden_size=768,
                    num_layers=4, num_heads=12, attention_types=[[["global", "local"], 2]]),
    "gptj": text(T.GPTJForCausalLM, T.GPTJConfig, output="logits", length=512, mask=False, n_embd=1024, n_layer=4,
                 n_head=16, rotary_dim=32),
    "bloom": text(T.BloomForCausalLM, T.BloomConfig, output="logits", length=512, hidden_size=1024, n_layer=4, n_head=16),
    "falcon": text(T.FalconForCausalLM, T.FalconConfig, output="logits", length=512, mask=False, hidden_size=1024,
                   num_hidden_layers=4, num_attention_heads=16),
    "stablelm": text(T.StableLmForCausalLM, T.StableLmConfig, **GROUPED),
    "olmo": text(T.OlmoForCausalLM, T.OlmoConfig, **DECODER),
    "phi3": text(T.Phi3ForCausalLM, T.Phi3Config, pad_token_id=0, **GROUPED),
    "gemma2": text(T.Gemma2ForCausalLM, T.Gemma2Config, head_dim=128, **(GROUPED | {"num_attention_heads": 8})),
    "qwen3": text(T.Qwen3ForCausalLM, T.Qwen3Config, head_dim=128, **(GROUPED | {"num_attention_heads": 8})),
    "starcoder2": text(T.Starcoder2ForCausalLM, T.Starcoder2Config, **GROUPED),
    "granite": text(T.GraniteForCausalLM, T.GraniteConfig, **GROUPED),
    "dinov2": pixels(T.Dinov2Model, T.Dinov2Config, patch_size=14, **(PATCHES | {"mlp_ratio": 4})),
    "siglip_vision": pixels(T.SiglipVisionModel, T.SiglipVisionConfig, patch_size=16, **PATCHES),
    "mobilevit": pixels(T.MobileViTModel, T.MobileViTConfig, size=256, image_size=256),
    "poolformer": pixels(T.PoolFormerModel, T.PoolFormerConfig),
    "pvt": pixels(T.PvtV2Model, T.PvtV2Config),
    "dpt": pixels(T.DPTForDepthEstimation, T.DPTConfig, output="predicted_depth", small=384, size=384, image_size=384,
                  num_hidden_layers=12),
    "r3d_18": clip_of_frames("r3d_18"),
    "mvit_v1_b": clip_of_frames("mvit_v1_b", size=224, small=224),
    "swin3d_t": clip_of_frames("swin3d_t", size=112, small=64),
    "efficientnet_b3": vision("efficientnet_b3", size=300),
    "convnext_small": vision("convnext_small"),
    "regnet_y_3_2gf": vision("regnet_y_3_2gf"),
    "vgg16_bn": vision("vgg16_bn"),
}
OTHERS = {
    "s3d": clip_of_frames("s3d", size=224, small=64),
    "focalnet": pixels(T.FocalNetModel, T.FocalNetConfig, image_size=224),
    "levit": pixels(T.LevitModel, T.LevitConfig, small=224, image_size=224),
    "cvt": pixels(T.CvtModel, T.CvtConfig, depth=[1, 2, 4]),
    "hiera": pixels(T.HieraModel, T.HieraConfig, small=224),
    "mobilevitv2": pixels(T.MobileViTV2Model, T.MobileViTV2Config, size=256, image_size=256),
    "bit": pixels(T.BitModel, T.BitConfig, depths=[2, 3, 4, 2]),
    "glpn": pixels(T.GLPNForDepthEstimation, T.GLPNConfig, output="predicted_depth", size=256),
    "sam_vision": pixels(T.SamVisionModel, T.SamVisionConfig, small=512, size=512, image_size=512, hidden_size=384,
                         num_hidden_layers=6, num_attention_heads=6, global_attn_indexes=[2, 5]),
    "bart": text(T.BartModel, T.BartConfig, encoder_layers=3, decoder_layers=3),
    "convbert": text(T.ConvBertModel, T.ConvBertConfig, **(BASE | {"num_hidden_layers": 4})),
    "modernbert": text(T.ModernBertModel, T.ModernBertConfig, pad_token_id=0, **(BASE | {"intermediate_size": 1152})),
    "rembert": text(T.RemBertModel, T.RemBertConfig, input_embedding_size=256, **(BASE | {"num_hidden_layers": 4})),
    "mt5_encoder": text(T.MT5EncoderModel, T.MT5Config, d_model=512, num_layers=6, num_heads=6, d_kv=64, d_ff=1024),
    "olmo2": text(T.Olmo2ForCausalLM, T.Olmo2Config, **(GROUPED | {"num_hidden_layers": 4})),
    "cohere": text(T.CohereForCausalLM, T.CohereConfig, **(GROUPED | {"num_hidden_layers": 4})),
    "nemotron": text(T.NemotronForCausalLM, T.NemotronConfig, **(GROUPED | {"num_hidden_layers": 4})),
    "codegen": text(T.CodeGenForCausalLM, T.CodeGenConfig, output="logits", length=512, mask=False, n_embd=1024,
                    n_layer=4, n_head=16, rotary_dim=32),
    "hubert": speech(T.HubertModel, T.HubertConfig, num_hidden_layers=4),
    "ast": spectrogram,
}
KNOWN = TORCHVISION | TRANSFORMERS | MORE | OTHERS
SETS = {"all": [*TORCHVISION, *TRANSFORMERS], "torchvision": list(TORCHVISION), "transformers": list(TRANSFORMERS),
        "more": list(MORE), "others": list(OTHERS)}


def build(name, batch, device="cpu", small=False):
    """The model in f32 and its inputs, both on the device."""
    torch.manual_seed(SEED)
    model, inputs = KNOWN[name](batch, small)
    zoo.spread_constant_parameters(model)
    model = model.to(device)
    image = inputs.get("image", inputs.get("pixel_values"))
    if image is not None:
        zoo.settle_batch_norms(model, zoo.images(4, image.shape[-1]).to(device))
    return zoo.Example(model.eval(), {n: t.to(device) for n, t in inputs.items()}, ["result"], {})
