package xdstest

import (
	"fmt"
	"runtime"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Resource returns a resource whose body is an Any of no type with its name and version.
func Resource(name, version string) *envoy.Resource {
	body := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), name+"="+version)
	return &envoy.Resource{Name: name, Version: version, Body: body}
}

// Node returns the node of a sidecar.
func Node(pod string) *corev3.Node {
	return &corev3.Node{Id: "sidecar~10.0.0.1~" + pod + "~a.svc.cluster.local", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{"ISTIO_VERSION": structpb.NewStringValue("1.31.0")},
	}}
}

// Names returns n different names.
func Names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("n", i)
	}
	return list
}

// Heap returns the bytes on the heap once garbage and its cleanups are gone.
func Heap() uint64 {
	for range 4 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
