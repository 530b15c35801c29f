"""onnxruntime's functions, each as a model of one node (or of the few that the opset needs)."""

import onnxruntime
from onnx import TensorProto, helper

OPSET = 20


def session(nodes, constants=(), dims=("n",)):
    shape = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    values = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in constants]
    graph = helper.make_graph(nodes, "function", [shape("x")], [shape("y")], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    run = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run
    return lambda x: run(["y"], {"x": x})[0]


def sessions():
    node = helper.make_node
    one = {"exp": "Exp", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "sin": "Sin", "cos": "Cos"}
    made = {name: session([node(op, ["x"], ["y"])]) for name, op in one.items()}
    made["gelu"] = session([node("Gelu", ["x"], ["y"])])
    made["gelu_tanh"] = session([node("Gelu", ["x"], ["y"], approximate="tanh")])
    made["silu"] = session([node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])])
    scaled = [node("Mul", ["x", "c"], ["m"]), node("Sigmoid", ["m"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    made["quick_gelu"] = session(scaled, [("c", 1.702)])
    made["rsqrt"] = session([node("Sqrt", ["x"], ["r"]), node("Reciprocal", ["r"], ["y"])])
    return made


def softmax():
    return session([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], dims=("rows", "n"))
