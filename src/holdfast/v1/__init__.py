"""Protocol Buffers that other languages read too.

After a change of task.proto, with grpcio-tools 1.62.3 (later ones bind their output to one version of protobuf):
`python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/holdfast/v1/task.proto`
"""
