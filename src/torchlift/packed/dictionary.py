"""What headers have in common: text that the deflater may point back to, the commonest at the end.

``DICTIONARY`` belongs to the third version of the coder: a file can only be read with the very bytes it was
written with. It never changes (a test holds its SHA-256); another one needs another version.
"""

WEIGHT = '"weight":[-1,true]'
AFFINE = WEIGHT + ',"bias":[-1,true]'
STATISTICS = '"running_mean":[-1,true],"running_var":[-1,true],"num_batches_tracked":[-1,true]'
VALUE = '{"dict":[["value",1]]}'


def layer(name: str, path: str, plain: str = "", tensors: str = "", buffers: str = "") -> str:
    """A module without children, under a name, in training and in evaluation."""
    return "".join(
        f'"{name}":{{"class":"torch.nn.modules.{path}","plain":{{"training":{training}{"," * bool(plain)}'
        f'{plain}}},"parameters":{{{tensors}}},"buffers":{{{buffers}}},"children":{{}}}},'
        for training in ("false", "true")
    )


def holder(name: str, path: str, first: str) -> str:
    """The beginning of a module with children."""
    return "".join(
        f'"{name}":{{"class":"{path}","plain":{{"training":{training}}},"parameters":{{}},"buffers":{{}},'
        f'"children":{{"{first}":{{"class":"torch.nn.modules.'
        for training in ("false", "true")
    )


def convolution(name: str, kind: str, kernel: str, padding: str, tensors: str = AFFINE) -> str:
    """A convolution; sizes as "3,3"."""
    ones, zeros = ("1,1", "0,0") if "," in kernel else ("1", "0")
    return layer(
        name,
        f"conv:{kind}",
        f'"in_channels":16,"out_channels":32,"kernel_size":{{"tuple":[{kernel}]}},'
        f'"stride":{{"tuple":[{ones}]}},"padding":{{"tuple":[{padding}]}},"dilation":{{"tuple":[{ones}]}},'
        f'"transposed":{"true" if "Transpose" in kind else "false"},"output_padding":{{"tuple":[{zeros}]}},'
        '"groups":1,"padding_mode":"zeros",'
        f'"_reversed_padding_repeated_twice":{{"tuple":[{padding},{padding}]}}',
        tensors,
    )


def pooling(name: str, kind: str, plain: str) -> str:
    """A pooling layer of squares of two."""
    return layer(name, f"pooling:{kind}", f'"kernel_size":2,"stride":2,"padding":0,{plain}')


def norm(name: str, kind: str) -> str:
    """A batch norm."""
    plain = '"num_features":64,"eps":1e-05,"momentum":0.1,"affine":true,"track_running_stats":true'
    return layer(name, f"batchnorm:{kind}", plain, AFFINE, STATISTICS)


def step(name: str, *given: str) -> str:
    """An operation of a stored graph."""
    return f'{{"tuple":["{name}",[{",".join(given)}],{{"dict":[]}}]}},'


def attention(name: str) -> str:
    """torch's attention."""
    return layer(
        name,
        "activation:MultiheadAttention",
        '"embed_dim":64,"kdim":64,"vdim":64,"_qkv_same_embed_dim":true,"num_heads":4,"dropout":0.0,'
        '"batch_first":true,"head_dim":16,"bias_k":null,"bias_v":null,"add_zero_attn":false',
        '"in_proj_weight":[-1,true],"q_proj_weight":null,"k_proj_weight":null,"v_proj_weight":null,'
        '"in_proj_bias":[-1,true]',
    )


def recurrent(name: str, kind: str) -> str:
    """A recurrent layer."""
    names = '"weight_ih_l0","weight_hh_l0","bias_ih_l0","bias_hh_l0"'
    return layer(
        name,
        f"rnn:{kind}",
        f'"mode":"{kind}","input_size":64,"hidden_size":64,"num_layers":1,"bias":true,"batch_first":true,'
        '"dropout":0.0,"bidirectional":false,"proj_size":0,'
        f'"_flat_weights_names":[{names}],"_all_weights":[[{names}]]',
        names.replace('",', '":[-1,true],') + ":[-1,true]",
    )


GRAPH = (
    '{"model":{"class":"torchlift.packed.programs:Program","plain":{"training":false,"names":["input0"],'
    '"weights":["p_conv1_weight","p_bn1_weight","p_bn1_bias","b_bn1_running_mean","b_bn1_running_var",'
    '"b_bn1_num_batches_tracked","p_blocks_0_weight","p_fc1_bias","p_head_weight","p_head_bias"],"steps":['
    + step("aten.sym_size.int", VALUE, "0")
    + step("aten.embedding.default", VALUE, VALUE)
    + step("aten.scaled_dot_product_attention.default", VALUE, VALUE, VALUE, "null", "0.0", "true")
    + step("aten.transpose.int", VALUE, "1", "2")
    + step("aten.permute.default", VALUE, "[2,0,3,1,4]")
    + step("aten.unbind.int", VALUE)
    + step("aten.clone.default", VALUE)
    + step("aten.layer_norm.default", VALUE, "[64]", VALUE, VALUE, "1e-05", "false")
    + step("aten.gelu.default", VALUE)
    + step("aten.mean.dim", VALUE, "[-1,-2]", "true")
    + step("aten.adaptive_avg_pool2d.default", VALUE, "[1,1]")
    + step("aten._native_batch_norm_legit_no_training.default", *[VALUE] * 5, "0.1", "1e-05")
    + step("operator.getitem", VALUE, "0")
    + step("aten.add.Tensor", VALUE, VALUE)
    + step("aten.max_pool2d.default", VALUE, "[2,2]", "[2,2]")
    + step("aten.conv2d.default", VALUE, VALUE, "null", "[1,1]", "[1,1]")
    + step("aten.conv2d.default", VALUE, VALUE, VALUE, "[1,1]", "[1,1]")
    + step("aten.relu.default", VALUE)
    + step("aten.view.default", VALUE, f"[{VALUE},64]")
    + step("aten.linear.default", VALUE, VALUE, VALUE)
    + '],"inputs":[{"tuple":[[2,3,32,32],{"dtype":"float32"}]},{"tuple":[[2,8],{"dtype":"int64"}]}],'
    f'"results":{VALUE}}},"parameters":{{"p_head_weight":[-1,true],"p_head_bias":[-1,true]'
    '},"buffers":{"b_bn1_running_mean":[-1,true]},"children":{}}}'
)
SIZES = '"in_features":64,"out_features":'
GROUPS = '"num_groups":8,"num_channels":64,"eps":1e-05,"affine":true'
SCALED = '"name":"Upsample","size":null,"scale_factor":2.0,"mode":"nearest","align_corners":null,'
AVERAGED = '"ceil_mode":false,"count_include_pad":true,"divisor_override":null'
EMBEDDED = '"num_embeddings":64,"embedding_dim":64,"padding_idx":null,"max_norm":null,"norm_type":2.0,'
SHAPE = '"normalized_shape":{"tuple":[64]},"eps":1e-05,"elementwise_affine":true'
RARER = (
    layer("up", "upsampling:Upsample", SCALED + '"recompute_scale_factor":null')
    + layer("unflatten", "flatten:Unflatten", '"dim":1,"unflattened_size":{"tuple":[64,4,4]}')
    + recurrent("rnn", "GRU")
    + recurrent("lstm", "LSTM")
    + attention("self_attn")
    + layer("out_proj", "linear:NonDynamicallyQuantizableLinear", f"{SIZES}64", AFFINE)
    + layer("norm", "normalization:GroupNorm", GROUPS, AFFINE)
    + convolution("conv", "Conv1d", "3", "1")
    + convolution("up", "ConvTranspose2d", "4,4", "1,1")
    + norm("bn", "BatchNorm1d")
    + layer("softmax", "activation:Softmax", '"dim":-1')
    + layer("act", "activation:Sigmoid")
    + layer("act", "activation:Tanh")
    + layer("act", "activation:LeakyReLU", '"negative_slope":0.01,"inplace":false')
    + layer("act", "activation:Hardswish", '"inplace":false')
    + layer("act", "activation:ReLU6", '"inplace":true')
    + layer("act", "activation:SiLU", '"inplace":false')
    + pooling("pool", "AvgPool2d", AVERAGED)
)
COMMON = (
    layer("token", "sparse:Embedding", EMBEDDED + '"scale_grad_by_freq":false,"sparse":false', WEIGHT)
    + layer("norm1", "normalization:LayerNorm", SHAPE, AFFINE)
    + layer("act", "activation:GELU", '"approximate":"none"')
    + layer("shortcut", "linear:Identity")
    + layer("avgpool", "pooling:AdaptiveAvgPool2d", '"output_size":{"tuple":[1,1]}')
    + layer("pool", "pooling:AdaptiveAvgPool2d", '"output_size":1')
    + layer("dropout", "dropout:Dropout", '"p":0.1,"inplace":false')
    + layer("qkv", "linear:Linear", f"{SIZES}64", f'{WEIGHT},"bias":null')
    + convolution("downsample", "Conv2d", "1,1", "0,0", f'{WEIGHT},"bias":null')
    + convolution("conv2", "Conv2d", "3,3", "1,1", f'{WEIGHT},"bias":null')
    + norm("bn1", "BatchNorm2d")
    + holder("blocks", "torch.nn.modules.container:ModuleList", "0")
    + holder("features", "torch.nn.modules.container:Sequential", "0")
    + ',"_holds_zeros_of":{"tuple":["weight"]},"_on_grid":{"tuple":["weight"]}},"parameters":{'
    + layer("flatten", "flatten:Flatten", '"start_dim":1,"end_dim":-1')
    + pooling("pool1", "MaxPool2d", '"dilation":1,"return_indices":false,"ceil_mode":false')
    + convolution("conv1", "Conv2d", "3,3", "1,1")
    + convolution("conv1", "Conv2d", "5,5", "2,2")
    + layer("relu1", "activation:ReLU", '"inplace":true')
    + layer("relu1", "activation:ReLU", '"inplace":false')
    + layer("head", "linear:Linear", f"{SIZES}10", AFFINE)
    + layer("fc1", "linear:Linear", f"{SIZES}64", AFFINE)
    + '}}},"channels_last":[0,1,2]}{"model":{"class":"torchlift.models.'
)
DICTIONARY = (GRAPH + RARER + COMMON).encode()
