package envoy

import (
	"strconv"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

var deterministic = proto.MarshalOptions{Deterministic: true}

// Any packs a message, deterministically. It panics where m has a string that is not UTF-8: validation keeps those out.
func Any(m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL(m), Value: encode(m)}
}

// NewResource encodes one resource.
func NewResource(name string, m proto.Message) *Resource {
	return rawResource(name, typeURL(m), encode(m))
}

// NewRoute makes a RouteConfiguration of its header, a message without virtual hosts, and of virtual hosts that are encoded already: a repeated field may
// stand anywhere among the others in protobuf's wire format.
func NewRoute(header *Resource, hosts []*Resource) *Resource {
	const virtualHosts = 2 // RouteConfiguration.virtual_hosts
	n := len(header.Value())
	for _, h := range hosts {
		n += protowire.SizeTag(virtualHosts) + protowire.SizeBytes(len(h.Value()))
	}
	b := make([]byte, 0, n)
	b = append(b, header.Value()...)
	for _, h := range hosts {
		b = protowire.AppendTag(b, virtualHosts, protowire.BytesType)
		b = protowire.AppendBytes(b, h.Value())
	}
	r := rawResource(header.Name, RouteType, b)
	r.Header, r.Hosts = header, hosts
	return r
}

func rawResource(name, url string, value []byte) *Resource {
	body := make([]byte, 0, protowire.SizeBytes(len(url))+protowire.SizeBytes(len(value))+2)
	body = protowire.AppendTag(body, 1, protowire.BytesType)
	body = protowire.AppendString(body, url)
	if len(value) > 0 {
		body = protowire.AppendTag(body, 2, protowire.BytesType)
		body = protowire.AppendVarint(body, uint64(len(value)))
	}
	at := len(body)
	body = append(body, value...)
	return &Resource{Name: name, Version: strconv.FormatUint(xxhash.Sum64(body), 16), Body: body, value: at}
}

func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

func encode(m proto.Message) []byte {
	b, err := deterministic.Marshal(m)
	if err != nil {
		panic("encoding " + typeURL(m) + ": " + err.Error())
	}
	return b
}
