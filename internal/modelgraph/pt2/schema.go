package pt2

import "vramscope/internal/modelgraph"

// scalarTypes are the numbers of torch/_export/serde/schema.py's ScalarType.
var scalarTypes = map[int64]modelgraph.DType{
	1: modelgraph.UInt8, 2: modelgraph.Int8, 3: modelgraph.Int16, 4: modelgraph.Int32, 5: modelgraph.Int64,
	6: modelgraph.Float16, 7: modelgraph.Float32, 8: modelgraph.Float64,
	10: modelgraph.Complex64, 12: modelgraph.Bool, 13: modelgraph.BFloat16,
	28: modelgraph.Int16, // uint16
	29: modelgraph.Float8, 30: modelgraph.Float8, 31: modelgraph.Float8, 32: modelgraph.Float8,
}

// memoryFormats are the numbers of schema.py's MemoryFormat.
var memoryFormats = map[int64]string{1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}

// tensorArgs are the tensors of operators some of whose tensors may be left
// out, in the order of ATen's schema (native_functions.yaml, 2.11). An export
// leaves out arguments that have their defaults; here each tensor has its
// place, with None where it is absent. Operators that are not in the table
// have their tensors in the order in which the export writes them, which is
// the schema's too.
var tensorArgs = map[string][]string{
	"linear":                               {"input", "weight", "bias"},
	"bilinear":                             {"input1", "input2", "weight", "bias"},
	"conv1d":                               {"input", "weight", "bias"},
	"conv2d":                               {"input", "weight", "bias"},
	"conv3d":                               {"input", "weight", "bias"},
	"conv_transpose1d":                     {"input", "weight", "bias"},
	"conv_transpose2d":                     {"input", "weight", "bias"},
	"conv_transpose3d":                     {"input", "weight", "bias"},
	"convolution":                          {"input", "weight", "bias"},
	"_convolution":                         {"input", "weight", "bias"},
	"batch_norm":                           {"input", "weight", "bias", "running_mean", "running_var"},
	"native_batch_norm":                    {"input", "weight", "bias", "running_mean", "running_var"},
	"_native_batch_norm_legit":             {"input", "weight", "bias", "running_mean", "running_var"},
	"_native_batch_norm_legit_functional":  {"input", "weight", "bias", "running_mean", "running_var"},
	"_native_batch_norm_legit_no_training": {"input", "weight", "bias", "running_mean", "running_var"},
	"_batch_norm_with_update":              {"input", "weight", "bias", "running_mean", "running_var"},
	"_batch_norm_with_update_functional":   {"input", "weight", "bias", "running_mean", "running_var"},
	"instance_norm":                        {"input", "weight", "bias", "running_mean", "running_var"},
	"layer_norm":                           {"input", "weight", "bias"},
	"native_layer_norm":                    {"input", "weight", "bias"},
	"group_norm":                           {"input", "weight", "bias"},
	"native_group_norm":                    {"input", "weight", "bias"},
	"rms_norm":                             {"input", "weight"},
	"scaled_dot_product_attention":         {"query", "key", "value", "attn_mask"},
	"_scaled_dot_product_efficient_attention": {"query", "key", "value", "attn_bias"},
	"_scaled_dot_product_cudnn_attention":     {"query", "key", "value", "attn_bias"},
	"cross_entropy_loss":                      {"self", "target", "weight"},
	"nll_loss":                                {"self", "target", "weight"},
	"nll_loss_nd":                             {"self", "target", "weight"},
	"nll_loss_forward":                        {"self", "target", "weight"},
	"nll_loss2d_forward":                      {"self", "target", "weight"},
	"binary_cross_entropy":                    {"self", "target", "weight"},
	"binary_cross_entropy_with_logits":        {"self", "target", "weight", "pos_weight"},
	"embedding_bag":                           {"weight", "indices", "offsets", "per_sample_weights"},
}

// bookkeeping are nodes that compute nothing on tensors: sizes, and checks
// that the exporter put in.
func bookkeeping(op string) bool {
	switch op {
	case "sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "sym_constrain_range", "sym_constrain_range_for_size",
		"_assert_tensor_metadata", "_assert_async", "_assert_scalar", "profiler._record_function_enter_new", "profiler._record_function_exit":
		return true
	}
	return false
}
