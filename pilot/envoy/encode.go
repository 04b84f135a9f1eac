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
	sized         = proto.MarshalOptions{Deterministic: true, UseCachedSize: true} // right after Size
)

// Any packs a message, deterministically. It panics where m has a string that is not UTF-8: validation keeps those out.
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
	if r.secret { // the version is shown, and nobody must learn from it what is in the secret
		sum := sha256.Sum256(body)
		r.Version = hex.EncodeToString(sum[:16])
	} else {
		r.Version = strconv.FormatUint(xxhash.Sum64(body), 16)
	}
	return r
}

// NewHost returns an encoded virtual host, which is both a resource for VHDS and a part of its route configuration.
// Envoy takes all before the last slash of the resource's name for the route configuration, and a Gateway may have
// hosts with a slash: HostName escapes those.
func NewHost(route string, h *routev3.VirtualHost) *Resource {
	return RawResource(HostName(route, h.GetName()), VirtualHostType, encode(h))
}

const slash = "%2F" // no host has a %

// HostName returns the name of a virtual host's resource: "<route configuration>/<virtual host>".
func HostName(route, host string) string { return route + "/" + strings.ReplaceAll(host, "/", slash) }

// HostOf returns the name of the virtual host in a resource's name, without its route configuration.
func HostOf(name string) string { return strings.ReplaceAll(name, slash, "/") }

// Tombstone takes the place of a virtual host that is to be removed, by the same names: no request is for it. Envoy
// keeps virtual hosts by VirtualHost.name but looks for the one to remove by the resource's name, so that it
// acknowledges a removal and goes on routing.
func Tombstone(name string) *Resource {
	at := strings.LastIndexByte(name, '/')
	route, host := name[:at], strings.ReplaceAll(name[at+1:], slash, "/")
	// no Host header has a slash
	return NewHost(route, &routev3.VirtualHost{Name: host, Domains: []string{"removed.invalid/" + host}})
}

// NewRoute returns a RouteConfiguration that is spliced from its header, a message without virtual hosts, and from
// encoded virtual hosts with the Content c: in protobuf's wire format the elements of a repeated field may be anywhere
// among the other fields. Nothing is copied. Without virtual hosts it is the header itself. head is what clients get
// that take virtual hosts by VHDS; nil where none may.
func NewRoute(header, head *Resource, hosts *Set, c Content) *Resource {
	if hosts.Len() == 0 {
		return header
	}
	r := &Resource{Name: header.Name, Header: header, Head: head, Hosts: hosts, Version: strconv.FormatUint(xxhash.Sum64String(header.Version)*31+c.sum, 16)}
	n := len(header.Value()) + c.size
	r.value = len(appendAny(nil, RouteType, n))
	r.size = r.value + n
	return r
}

const virtualHosts = 2 // RouteConfiguration.virtual_hosts

func hostSize(h *Resource) int {
	return protowire.SizeTag(virtualHosts) + protowire.SizeBytes(len(h.Value()))
}

// splice returns the bytes of a RouteConfiguration.
func (r *Resource) splice() []byte {
	b := appendAny(make([]byte, 0, r.size), RouteType, r.size-r.value)
	b = append(b, r.Header.Value()...)
	for h := range r.Hosts.All {
		b = appendHost(b, h)
	}
	return b
}

// Merged returns the RouteConfiguration that a client has which was sent a head and virtual hosts by VHDS.
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

// RawResource returns one resource whose message is encoded already.
func RawResource(name, url string, value []byte) *Resource {
	body := appendAny(make([]byte, 0, protowire.SizeBytes(len(url))+protowire.SizeBytes(len(value))+2), url, len(value))
	at := len(body)
	body = append(body, value...)
	return newResource(name, url, body, at)
}

// appendAny appends the beginning of an Any, up to its value. value is the value's length.
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
