package xdsproxy

import (
	"errors"
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the name of the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// codec passes messages on as the bytes they came in. What is received is a reference that whoever sends it, or drops
// it, gives back.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(mem.BufferSlice); ok {
		return m, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*mem.BufferSlice); ok {
		data.Ref()
		*m = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Field numbers of the type's URL.
const (
	sotwTypeURL  = 4 // of requests and responses
	deltaTypeURL = 2 // of requests; responses have it at sotwTypeURL
)

var errMalformed = errors.New("malformed message")

// typeOf returns the text of the last top-level field of this number: the type's URL. Resources are skipped.
func typeOf(m mem.BufferSlice, field protowire.Number) (string, error) {
	c, found := cursor{m: m}, ""
	for !c.end() {
		tag, err := c.varint()
		if err != nil {
			return "", err
		}
		number, wireType := protowire.DecodeTag(tag)
		var skip uint64
		switch wireType {
		case protowire.VarintType:
			if _, err := c.varint(); err != nil {
				return "", err
			}
			continue
		case protowire.Fixed32Type:
			skip = 4
		case protowire.Fixed64Type:
			skip = 8
		case protowire.BytesType:
			if skip, err = c.varint(); err != nil {
				return "", err
			}
		default:
			return "", errMalformed
		}
		if number == field && wireType == protowire.BytesType && skip <= 512 {
			text := make([]byte, 0, skip)
			if text, err = c.take(text, int(skip)); err != nil {
				return "", err
			}
			found = string(text)
			continue
		}
		if err := c.skip(skip); err != nil {
			return "", err
		}
	}
	return found, nil
}

// cursor is a place in a message.
type cursor struct {
	m     mem.BufferSlice
	i, at int // the buffer, and the byte of it
}

func (c *cursor) end() bool {
	for c.i < len(c.m) && c.at >= c.m[c.i].Len() {
		c.i, c.at = c.i+1, 0
	}
	return c.i >= len(c.m)
}

func (c *cursor) varint() (v uint64, err error) {
	for shift := uint(0); shift < 64; shift += 7 {
		if c.end() {
			return 0, errMalformed
		}
		b := c.m[c.i].ReadOnlyData()[c.at]
		c.at++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errMalformed
}

func (c *cursor) skip(n uint64) error {
	for n > 0 {
		if c.end() {
			return errMalformed
		}
		step := min(n, uint64(c.m[c.i].Len()-c.at))
		c.at += int(step)
		n -= step
	}
	return nil
}

func (c *cursor) take(to []byte, n int) ([]byte, error) {
	for n > 0 {
		if c.end() {
			return nil, errMalformed
		}
		step := min(n, c.m[c.i].Len()-c.at)
		to = append(to, c.m[c.i].ReadOnlyData()[c.at:c.at+step]...)
		c.at, n = c.at+step, n-step
	}
	return to, nil
}

// response is a response of either protocol, decoded.
type response struct {
	delta     *discoveryv3.DeltaDiscoveryResponse
	sotw      *discoveryv3.DiscoveryResponse
	typeURL   string
	nonce     string
	resources []*anypb.Any
}

// decode decodes a response, and gives its bytes back.
func decode(m mem.BufferSlice, delta bool) (*response, error) {
	defer m.Free()
	r := &response{}
	if !delta {
		r.sotw = &discoveryv3.DiscoveryResponse{}
		if err := proto.Unmarshal(m.Materialize(), r.sotw); err != nil {
			return nil, fmt.Errorf("decode a response: %w", err)
		}
		r.typeURL, r.nonce, r.resources = r.sotw.GetTypeUrl(), r.sotw.GetNonce(), r.sotw.GetResources()
		return r, nil
	}
	r.delta = &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(m.Materialize(), r.delta); err != nil {
		return nil, fmt.Errorf("decode a response: %w", err)
	}
	r.typeURL, r.nonce = r.delta.GetTypeUrl(), r.delta.GetNonce()
	for _, x := range r.delta.GetResources() {
		if x.GetResource() != nil {
			r.resources = append(r.resources, x.GetResource())
		}
	}
	return r, nil
}

// message returns the response, whose resources may have been changed.
func (r *response) message() proto.Message {
	if r.delta != nil {
		return r.delta
	}
	return r.sotw
}

// encode returns a message as the codec sends it.
func encode(m proto.Message) (mem.BufferSlice, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// answer returns the request that acknowledges a response, or rejects it with a reason. version is that of the last
// response that was accepted, which the state of the world repeats.
func (r *response) answer(version string, names []string, reason error) typed {
	var detail *rpcstatus.Status
	if reason != nil {
		detail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason.Error()}
	}
	if r.delta != nil {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce, ErrorDetail: detail}
	}
	return &discoveryv3.DiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce, VersionInfo: version, ResourceNames: names, ErrorDetail: detail}
}
