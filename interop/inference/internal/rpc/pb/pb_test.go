package pb

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/usmbridge/usmbridge/interop/inference/internal/clienttest"
)

// clientSchema is a Python program that prints the FileDescriptorSet of tritonclient.
const clientSchema = `
import sys
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import model_config_pb2, service_pb2
files = FileDescriptorSet()
for module in (model_config_pb2, service_pb2):
    module.DESCRIPTOR.CopyToProto(files.file.add())
sys.stdout.buffer.write(files.SerializeToString())
`

// TestSchemaMatchesTritonclient checks that services, methods, messages, fields and values are
// equal to those of tritonclient.
func TestSchemaMatchesTritonclient(t *testing.T) {
	out, err := clienttest.Command(t, ".", "-c", clientSchema).Output()
	require.NoError(t, err)
	set := new(descriptorpb.FileDescriptorSet)
	require.NoError(t, proto.Unmarshal(out, set))
	files, err := protodesc.NewFiles(set)
	require.NoError(t, err)
	find := func(name protoreflect.FullName) protoreflect.Descriptor {
		d, err := files.FindDescriptorByName(name)
		require.NoError(t, err, name)
		return d
	}

	service := File_inference_proto.Services().Get(0)
	want, ok := find(service.FullName()).(protoreflect.ServiceDescriptor)
	require.True(t, ok)
	require.Equal(t, want.Methods().Len(), service.Methods().Len(), "every method is known")
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		w := want.Methods().ByName(m.Name())
		require.NotNil(t, w, m.Name())
		require.Equal(t, w.Input().FullName(), m.Input().FullName())
		require.Equal(t, w.Output().FullName(), m.Output().FullName())
		require.Equal(t, [2]bool{w.IsStreamingClient(), w.IsStreamingServer()}, [2]bool{m.IsStreamingClient(), m.IsStreamingServer()}, m.Name())
	}
	fields := 0
	var compare func(list protoreflect.MessageDescriptors)
	compare = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			m := list.Get(i)
			w, ok := find(m.FullName()).(protoreflect.MessageDescriptor)
			require.True(t, ok)
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				g := w.Fields().ByNumber(f.Number())
				require.NotNil(t, g, f.FullName())
				require.Equal(t, g.Name(), f.Name())
				require.Equal(t, g.Kind(), f.Kind(), f.FullName())
				require.Equal(t, g.Cardinality(), f.Cardinality(), f.FullName())
				require.Equal(t, g.IsMap(), f.IsMap(), f.FullName())
				require.Equal(t, g.IsPacked(), f.IsPacked(), f.FullName())
				require.Equal(t, g.ContainingOneof() == nil, f.ContainingOneof() == nil, f.FullName())
				if g.Message() != nil {
					require.Equal(t, g.Message().FullName(), f.Message().FullName())
				}
				fields++
			}
			compare(m.Messages())
		}
	}
	compare(File_inference_proto.Messages())
	require.Greater(t, fields, 100)
	enums := File_inference_proto.Enums()
	for i := range enums.Len() {
		w, ok := find(enums.Get(i).FullName()).(protoreflect.EnumDescriptor)
		require.True(t, ok)
		require.Equal(t, w.Values().Len(), enums.Get(i).Values().Len())
		for j := range w.Values().Len() {
			require.Equal(t, w.Values().Get(j).Number(), enums.Get(i).Values().ByName(w.Values().Get(j).Name()).Number())
		}
	}
	// Messages with a hand-written codec must have all fields.
	for _, name := range []protoreflect.FullName{"inference.ModelInferRequest", "inference.ModelInferResponse", "inference.ModelStreamInferResponse",
		"inference.InferParameter", "inference.InferTensorContents"} {
		w, ok := find(name).(protoreflect.MessageDescriptor)
		require.True(t, ok)
		require.Equal(t, w.Fields().Len(), File_inference_proto.Messages().ByName(name.Name()).Fields().Len(), name)
	}
}
