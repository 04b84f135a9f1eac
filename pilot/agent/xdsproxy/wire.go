package xdsproxy

import (
	"errors"
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// codec passes messages on as the bytes that were received. A received message is a reference, which its sender or
// consumer must free.
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

// Field numbers of the type URL.
const (
	sotwTypeURL  = 4 // in requests and responses
	deltaTypeURL = 2 // in delta requests; delta responses have it at sotwTypeURL
)

var errMalformed = errors.New("malformed message")

// typeOf returns the last value of a top-level string field, the type URL. It skips resources without decoding them.
// Values of more than 512 bytes are ignored.
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

// cursor is a position in a message.
type cursor struct {
	m              mem.BufferSlice
	buffer, offset int // index of the buffer, and of the byte in it
}

func (c *cursor) end() bool {
	for c.buffer < len(c.m) && c.offset >= c.m[c.buffer].Len() {
		c.buffer, c.offset = c.buffer+1, 0
	}
	return c.buffer >= len(c.m)
}

func (c *cursor) varint() (v uint64, err error) {
	for shift := uint(0); shift < 64; shift += 7 {
		if c.end() {
			return 0, errMalformed
		}
		b := c.m[c.buffer].ReadOnlyData()[c.offset]
		c.offset++
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
		step := min(n, uint64(c.m[c.buffer].Len()-c.offset))
		c.offset += int(step)
		n -= step
	}
	return nil
}

func (c *cursor) take(buf []byte, n int) ([]byte, error) {
	for n > 0 {
		if c.end() {
			return nil, errMalformed
		}
		step := min(n, c.m[c.buffer].Len()-c.offset)
		buf = append(buf, c.m[c.buffer].ReadOnlyData()[c.offset:c.offset+step]...)
		c.offset, n = c.offset+step, n-step
	}
	return buf, nil
}

// response is a decoded response of either protocol.
type response struct {
	delta     *discoveryv3.DeltaDiscoveryResponse
	sotw      *discoveryv3.DiscoveryResponse
	typeURL   string
	nonce     string
	resources []*anypb.Any
}

// decode decodes a response, and frees its bytes.
func decode(m mem.BufferSlice, delta bool) (*response, error) {
	defer m.Free()
	r := &response{}
	if !delta {
		r.sotw = &discoveryv3.DiscoveryResponse{}
		if err := proto.Unmarshal(m.Materialize(), r.sotw); err != nil {
			return nil, fmt.Errorf("failed to decode a response: %w", err)
		}
		r.typeURL, r.nonce, r.resources = r.sotw.GetTypeUrl(), r.sotw.GetNonce(), r.sotw.GetResources()
		return r, nil
	}
	r.delta = &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(m.Materialize(), r.delta); err != nil {
		return nil, fmt.Errorf("failed to decode a response: %w", err)
	}
	r.typeURL, r.nonce = r.delta.GetTypeUrl(), r.delta.GetNonce()
	for _, x := range r.delta.GetResources() {
		if x.GetResource() != nil {
			r.resources = append(r.resources, x.GetResource())
		}
	}
	return r, nil
}

// message returns the response message. Its resources may have been replaced.
func (r *response) message() proto.Message {
	if r.delta != nil {
		return r.delta
	}
	return r.sotw
}

// encode returns the bytes of a message, for the codec.
func encode(m proto.Message) (mem.BufferSlice, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// reply returns the request that acknowledges a response, or rejects it with a reason. version is the version of the
// last accepted response, which state-of-the-world requests contain.
func (r *response) reply(version string, names []string, reason error) typed {
	var detail *rpcstatus.Status
	if reason != nil {
		detail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason.Error()}
	}
	if r.delta != nil {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce, ErrorDetail: detail}
	}
	return &discoveryv3.DiscoveryRequest{
		TypeUrl: r.typeURL, ResponseNonce: r.nonce, VersionInfo: version, ResourceNames: names, ErrorDetail: detail,
	}
}
