package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

var (
	deterministic = proto.MarshalOptions{Deterministic: true}
	sized         = proto.MarshalOptions{Deterministic: true, UseCachedSize: true} // UseCachedSize: valid only directly after a call of Size
)

// Any packs a message deterministically. It panics if m has a string that is not UTF-8, which validation rejects.
func Any(m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL(m), Value: encode(m)}
}

// NewResource returns one encoded resource.
func NewResource(name string, m proto.Message) *Resource {
	url := typeURL(m)
	size := deterministic.Size(m)
	body := appendAny(make([]byte, 0, protowire.SizeBytes(len(url))+protowire.SizeBytes(size)+2), url, size)
	at := len(body)
	body, err := sized.MarshalAppend(body, m)
	if err != nil {
		panic("encoding " + url + ": " + err.Error())
	}
	return newResource(name, url, body, at)
}

func newResource(name, url string, body []byte, value int) *Resource {
	r := &Resource{Name: name, Body: body, value: value, secret: TypeOf(url).Secret}
	if r.secret { // versions are public: the version of a secret must not depend on its content
		sum := sha256.Sum256(body)
		r.Version = hex.EncodeToString(sum[:16])
	} else {
		r.Version = strconv.FormatUint(xxhash.Sum64(body), 16)
	}
	if refers(url) {
		r.references = new(references)
	}
	return r
}

// NewHost returns an encoded virtual host, which is both a resource for VHDS and a part of its route configuration.
// Envoy takes everything before the last slash of the resource's name for the name of the route configuration. Hosts of
// a Gateway may contain a slash, which HostName escapes.
func NewHost(route string, h *routev3.VirtualHost) *Resource {
	return RawResource(HostName(route, h.GetName()), VirtualHostType, encode(h))
}

const slash = "%2F" // unambiguous, because no host contains a percent sign

// HostName returns the name of a virtual host's resource: "<route configuration>/<virtual host>".
func HostName(route, host string) string { return route + "/" + strings.ReplaceAll(host, "/", slash) }

// HostOf returns the name of the virtual host in a resource's name, without its route configuration.
func HostOf(name string) string { return strings.ReplaceAll(name, slash, "/") }

// Tombstone returns a resource that replaces a removed virtual host of the same name and that matches no request. Envoy
// stores virtual hosts by VirtualHost.name, but looks up a removed one by the resource's name. So it acknowledges a
// removal and continues to route to the host.
func Tombstone(name string) *Resource {
	at := strings.LastIndexByte(name, '/')
	route, host := name[:at], strings.ReplaceAll(name[at+1:], slash, "/")
	// No Host header contains a slash.
	return NewHost(route, &routev3.VirtualHost{Name: host, Domains: []string{"removed.invalid/" + host}})
}

// NewRoute returns a RouteConfiguration spliced from its header, a message without virtual hosts, and from encoded
// virtual hosts with the Content c. In protobuf's wire format the elements of a repeated field may be anywhere among
// the other fields, so nothing is copied. Without virtual hosts the result is the header itself. head is sent to
// clients that subscribe to virtual hosts by VHDS. It is nil if no client may do so.
func NewRoute(header, head *Resource, hosts *Set, c Content) *Resource {
	if hosts.Len() == 0 {
		return header
	}
	r := &Resource{Name: header.Name, Header: header, Head: head, Hosts: hosts,
		Version: strconv.FormatUint(xxhash.Sum64String(header.Version)*31+c.sum, 16)}
	n := len(header.Value()) + c.size
	r.value = len(appendAny(nil, RouteType, n))
	r.size = r.value + n
	return r
}

const virtualHosts = 2 // field number of RouteConfiguration.virtual_hosts

func hostSize(h *Resource) int {
	return protowire.SizeTag(virtualHosts) + protowire.SizeBytes(len(h.Value()))
}

// splice returns the bytes of a RouteConfiguration that consists of a header and virtual hosts.
func (r *Resource) splice() []byte {
	b := appendAny(make([]byte, 0, r.size), RouteType, r.size-r.value)
	b = append(b, r.Header.Value()...)
	for h := range r.Hosts.All {
		b = appendHost(b, h)
	}
	return b
}

// Merged returns the RouteConfiguration that a client holds after it was sent a head, and its virtual hosts by VHDS.
func Merged(head *Resource, hosts iter.Seq[*Resource]) *Resource {
	b := slices.Clone(head.Value())
	for h := range hosts {
		b = appendHost(b, h)
	}
	return RawResource(head.Name, RouteType, b)
}

func appendHost(b []byte, h *Resource) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, virtualHosts, protowire.BytesType), h.Value())
}

// RawResource returns a resource whose message is already encoded.
func RawResource(name, url string, value []byte) *Resource {
	body := appendAny(make([]byte, 0, protowire.SizeBytes(len(url))+protowire.SizeBytes(len(value))+2), url, len(value))
	at := len(body)
	body = append(body, value...)
	return newResource(name, url, body, at)
}

// appendAny appends the beginning of an encoded Any, up to its value. value is the length of the value in bytes.
func appendAny(b []byte, url string, value int) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, url)
	if value > 0 {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(value))
	}
	return b
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
