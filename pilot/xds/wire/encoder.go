package wire

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that Codec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Response is one message to a proxy before it is encoded.
type Response struct {
	Delta     bool
	TypeURL   string
	Version   string // hash of the resources; only delta resources have their own
	Nonce     string
	Resources []*envoy.Resource
	Versions  []string // delta only: version of each resource; nil for the resources' own
	Removed   []string // delta only
}

// Size returns the number of bytes of the resources.
func (r *Response) Size() int {
	n := 0
	for _, x := range r.Resources {
		n += x.Size()
	}
	for _, name := range r.Removed {
		n += len(name)
	}
	return n
}

// Codec returns gRPC's codec for protobuf, except that it passes spliced responses on, and decodes Requests by hand. A
// gRPC server with this service needs it.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(mem.BufferSlice); ok {
		return m, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*Request); ok {
		return r.Unmarshal(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Field numbers of DiscoveryResponse and DeltaDiscoveryResponse, and of the latter's Resource.
const (
	fieldVersion      = 1
	fieldResources    = 2
	fieldTypeURL      = 4
	fieldNonce        = 5
	fieldControlPlane = 6
	deltaRemoved      = 6
	deltaControlPlane = 7

	resourceVersion = 1
	resourceAny     = 2
	resourceName    = 3
)

// Encoder splices responses. Neighbouring resources that many streams are sent together are encoded once: a list of
// resources is divided into blocks by their names alone, so that a changed resource affects only its own block. Streams
// share a block while any of them is being sent it, and while it is one of the recent ones. Secrets are encoded each
// time. It is safe for concurrent use.
type Encoder struct {
	controlPlane []byte // encoded
	seed         maphash.Seed

	mu     sync.Mutex
	blocks map[blockKey]weak.Pointer[block] // all blocks that are recent or referenced by a message
	recent *simplelru.LRU[blockKey, *block]
	bytes  int // of the recent blocks
}

// Bounds of blocks.
const (
	blockMean   = 64 // resources
	blockWhole  = 4 << 10
	recentBytes = 16 << 20 // bytes of the recent blocks
)

type blockKey struct {
	hash  uint64
	delta bool
}

// block is a sequence of resources of a response in the wire format. Bodies of at least blockWhole bytes are not
// copied, unless Resource.Bytes must assemble them. It is the pool of its buffers, so that it is reachable until gRPC
// has written them.
type block struct {
	resources []*envoy.Resource
	versions  []string
	chunks    [][]byte
	cost      int // in bytes
}

// Get is not called: gRPC only returns buffers to a block.
func (b *block) Get(length int) *[]byte { return new(make([]byte, length)) }

// Put does nothing, because the garbage collector frees the chunks.
func (b *block) Put(*[]byte) {}

// appendTo appends the buffers of the block to a message.
func (b *block) appendTo(m mem.BufferSlice) mem.BufferSlice {
	for i := range b.chunks {
		m = append(m, mem.NewBuffer(&b.chunks[i], b))
	}
	return m
}

// NewEncoder returns an Encoder of responses with a control plane's identifier.
func NewEncoder(identifier string) *Encoder {
	e := &Encoder{seed: maphash.MakeSeed(), blocks: map[blockKey]weak.Pointer[block]{}}
	e.controlPlane = appendText(nil, 1, identifier) // ControlPlane.identifier
	// fails only for sizes below 1
	e.recent, _ = simplelru.NewLRU(1<<20, func(_ blockKey, b *block) { e.bytes -= b.cost })
	return e
}

// Encode returns the message for SendMsg.
func (e *Encoder) Encode(r *Response) mem.BufferSlice {
	size := len(r.Version) + len(r.TypeURL) + len(r.Nonce) + len(e.controlPlane) + 32
	for _, name := range r.Removed {
		size += len(name) + 4
	}
	head := make([]byte, 0, size)
	head = appendText(head, fieldVersion, r.Version)
	head = appendText(head, fieldTypeURL, r.TypeURL)
	head = appendText(head, fieldNonce, r.Nonce)
	control := protowire.Number(fieldControlPlane)
	if r.Delta {
		control = deltaControlPlane
		for _, name := range r.Removed {
			head = appendText(head, deltaRemoved, name)
		}
	}
	head = protowire.AppendTag(head, control, protowire.BytesType)
	head = protowire.AppendBytes(head, e.controlPlane)
	out := append(make(mem.BufferSlice, 0, 4+len(r.Resources)/blockMean*2), mem.SliceBuffer(head))
	var h maphash.Hash
	h.SetSeed(e.seed)
	from := 0
	for i, x := range r.Resources {
		maphash.WriteComparable(&h, x)
		if r.Versions != nil {
			_, _ = h.WriteString(r.Versions[i]) // never fails
		}
		if last := i == len(r.Resources)-1; last || maphash.String(e.seed, x.Name)%blockMean == 0 {
			out = e.block(r, from, i+1, h.Sum64()).appendTo(out)
			h.Reset()
			from = i + 1
		}
	}
	return out
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// block returns a part of a response whose content has that hash.
func (e *Encoder) block(r *Response, from, to int, hash uint64) *block {
	resources, versions := r.Resources[from:to], []string(nil)
	if r.Versions != nil {
		versions = r.Versions[from:to]
	}
	if len(resources) == 1 && resources[0].Body != nil || resources[0].Secret() {
		return splice(r.Delta, resources, versions)
	}
	k := blockKey{hash, r.Delta}
	if b := e.cached(k); b != nil && slices.Equal(b.resources, resources) && slices.Equal(b.versions, versions) {
		return b
	}
	b := splice(r.Delta, slices.Clone(resources), slices.Clone(versions))
	runtime.AddCleanup(b, e.forget, k)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blocks[k] = weak.Make(b)
	e.keep(k, b)
	return b
}

// cached returns the block of a key, or nil, and makes it the most recent one.
func (e *Encoder) cached(k blockKey) *block {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.blocks[k].Value()
	if b != nil {
		e.keep(k, b)
	}
	return b
}

// keep makes a block the most recent one. The caller holds mu.
func (e *Encoder) keep(k blockKey, b *block) {
	if last, ok := e.recent.Get(k); ok && last == b {
		return
	}
	e.recent.Remove(k)
	e.recent.Add(k, b)
	for e.bytes += b.cost; e.bytes > recentBytes; {
		e.recent.RemoveOldest()
	}
}

// forget removes the entry of a block that was collected.
func (e *Encoder) forget(k blockKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.blocks[k].Value() == nil {
		delete(e.blocks, k)
	}
}

// splice encodes resources.
func splice(delta bool, resources []*envoy.Resource, versions []string) *block {
	b := &block{resources: resources, versions: versions}
	version := func(i int) string {
		if versions != nil {
			return versions[i]
		}
		return resources[i].Version
	}
	length := func(i int) int { // of the field's content
		x := resources[i]
		if !delta {
			return x.Size()
		}
		return 3 + protowire.SizeBytes(len(version(i))) + protowire.SizeBytes(len(x.Name)) + protowire.SizeBytes(x.Size())
	}
	size := 0
	for i, x := range resources {
		n := protowire.SizeBytes(length(i)) + 1
		b.cost += n
		size += n
		if x.Size() >= blockWhole {
			size -= x.Size()
		}
	}
	copied := make([]byte, 0, size)
	for i, x := range resources {
		copied = protowire.AppendTag(copied, fieldResources, protowire.BytesType)
		copied = protowire.AppendVarint(copied, uint64(length(i)))
		if delta {
			copied = appendText(copied, resourceVersion, version(i))
			copied = appendText(copied, resourceName, x.Name)
			copied = protowire.AppendTag(copied, resourceAny, protowire.BytesType)
			copied = protowire.AppendVarint(copied, uint64(x.Size()))
		}
		if x.Size() < blockWhole {
			copied = append(copied, x.Bytes()...)
			continue
		}
		b.chunks = append(b.chunks, copied, x.Bytes())
		copied = copied[len(copied):]
	}
	if len(copied) > 0 {
		b.chunks = append(b.chunks, copied)
	}
	return b
}
