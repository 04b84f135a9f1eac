package wire

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"unicode"
	"unicode/utf8"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Request is a DiscoveryRequest or DeltaDiscoveryRequest. It is decoded by hand, because most lists of names and
// versions repeat what other clients sent, and are looked up without making strings. The generated code decodes rare
// fields and nested messages. It rejects exactly the messages that the generated types reject.
type Request struct {
	Delta    bool
	Interner *Interner
	Limits   *limits.Limits
	Recent   *Recent // recent lists of the stream; optional
	// Types has the types that the stream has requested. Unmarshal adds to it. If it is not nil, only the first request of
	// a type has Versions, whatever becomes of that request.
	Types map[string]struct{}

	Size         int
	Node         *corev3.Node      // without extensions
	Capabilities node.Capabilities // of the extensions
	TypeURL      string
	Nonce        string
	Resumes      bool // state of the world: it has a version
	Detail       *rpcstatus.Status
	Names        Names // names to subscribe to
	Unsubscribed Names // delta: names to unsubscribe from
	Versions     InitialVersions
	Fault        error // a limit that the request exceeds
}

// Asks reports whether a request does more than acknowledge or reject a response.
func (r *Request) Asks() bool {
	return r.Nonce == "" || !r.Names.Empty() || !r.Unsubscribed.Empty()
}

// Names are the names in a request.
type Names struct {
	Names *envoy.Names // without the wildcard
	Star  bool
}

// Empty reports whether there are no names and no star.
func (n Names) Empty() bool { return n.Names == nil && !n.Star }

// Star subscribes to all resources of a type.
const Star = "*"

// Field numbers of the two requests, where they differ from the responses', and of Node.
const (
	requestVersion       = 1
	requestNode          = 2
	requestResourceNames = 3
	requestTypeURL       = 4
	requestNonce         = 5
	requestDetail        = 6
	requestLocators      = 7

	deltaNode                 = 1
	deltaTypeURL              = 2
	deltaSubscribe            = 3
	deltaUnsubscribe          = 4
	deltaVersions             = 5
	deltaNonce                = 6
	deltaDetail               = 7
	deltaLocators             = 8
	deltaUnsubscribedLocators = 9

	mapKey   = 1
	mapValue = 2

	nodeExtensions = 9
)

var errMalformed = errors.New("malformed message")

// rawRequest holds the fields of a request as slices of its bytes, valid until it is decoded.
type rawRequest struct {
	bytes                         []byte // buffer for a request in several slices
	typeURL, nonce, version       []byte
	names, unsubscribed, versions []entry
	span                          [2]int // begin of the first name and end of the last one, if they are contiguous
	apart                         bool   // the names are not contiguous
}

// Unmarshal decodes a message. It returns an error if the message is malformed, and sets Fault if it exceeds a limit.
func (r *Request) Unmarshal(data mem.BufferSlice) error {
	w := r.Interner.scratch()
	defer r.Interner.release(w)
	if len(data) == 1 {
		return r.decode(w, data[0].ReadOnlyData())
	}
	w.bytes = slices.Grow(w.bytes[:0], data.Len())[:data.Len()]
	data.CopyTo(w.bytes)
	return r.decode(w, w.bytes)
}

func (r *Request) decode(w *rawRequest, b []byte) error {
	r.Size = len(b)
	if err := eachField(b, func(f protowire.Number, at int, v []byte, end int) error { return r.field(w, f, at, v, end) }); err != nil {
		return err
	}
	r.TypeURL, r.Nonce, r.Resumes = envoy.TypeURL(w.typeURL), string(w.nonce), len(w.version) > 0
	if !r.room(w) {
		return nil
	}
	if err := r.subscribed(w, b); err != nil {
		return err
	}
	var err error
	if r.Unsubscribed, err = r.Interner.intern(w.unsubscribed, r.check); err != nil {
		return err
	}
	if _, again := r.Types[r.TypeURL]; again {
		return validate(w.versions)
	}
	if r.Types != nil {
		r.Types[r.TypeURL] = struct{}{}
	}
	r.Versions, err = r.Interner.versions(r.TypeURL, w.versions)
	return err
}

// Recent holds a stream's most recent lists of names by a hash of their bytes, because clients that repeat all names
// encode them in the same way. A collision harms only the client that causes it.
type Recent struct {
	next  int
	lists [4]recentNames
}

type recentNames struct {
	hash  uint64
	size  int
	names weak.Pointer[envoy.Names]
	star  bool
}

func (r *Request) subscribed(w *rawRequest, b []byte) (err error) {
	if r.Recent == nil || w.apart || len(w.names) < r.Interner.Few {
		r.Names, err = r.Interner.intern(w.names, r.check)
		return err
	}
	span := b[w.span[0]:w.span[1]]
	is := recentNames{hash: maphash.Bytes(r.Interner.seed, span), size: len(span)}
	for _, was := range r.Recent.lists {
		if was.hash == is.hash && was.size == is.size {
			if n := was.names.Value(); n != nil {
				r.Names = Names{n, was.star}
				return nil
			}
		}
	}
	if r.Names, err = r.Interner.intern(w.names, r.check); err == nil && r.Names.Names != nil {
		is.names, is.star = weak.Make(r.Names.Names), r.Names.Star
		r.Recent.lists[r.Recent.next] = is
		r.Recent.next = (r.Recent.next + 1) % len(r.Recent.lists)
	}
	return err
}

// room reports whether the request is within the limits. Names beyond them are dropped.
func (r *Request) room(w *rawRequest) bool {
	switch {
	case r.Fault != nil:
	case len(w.names)+len(w.unsubscribed) > r.Limits.NamesPerRequest:
		r.Fault = fmt.Errorf("more than %d resource names in one request", r.Limits.NamesPerRequest)
	case len(w.versions) > r.Limits.NamesPerStream:
		r.Fault = fmt.Errorf("versions of more than %d resources in one request", r.Limits.NamesPerStream)
	}
	return r.Fault == nil
}

// pageLength bounds the name of a debug page. The name includes a query, in which replicas name up to a hundred proxies
// to each other.
const pageLength = 64 << 10

// check checks a name that is in no known list against the limits.
func (r *Request) check(name []byte) bool {
	limit := r.Limits.NameLength
	if r.TypeURL == names.DebugType {
		limit = max(limit, pageLength)
	}
	if len(name) > limit {
		r.Fault = fmt.Errorf("resource name %.64q… has %d bytes, more than %d", name, len(name), limit)
	} else if i := bytes.IndexFunc(name, unicode.IsControl); i >= 0 {
		r.Fault = fmt.Errorf("resource name %.64q has a control character at byte %d", name, i)
	}
	return r.Fault == nil
}

// field handles one length-delimited field. It ignores unknown fields.
func (r *Request) field(w *rawRequest, f protowire.Number, at int, v []byte, end int) error {
	if !r.Delta {
		switch f {
		case requestVersion:
			return text(&w.version, v)
		case requestNode:
			return r.mergeNode(v)
		case requestResourceNames:
			if r.room(w) {
				w.add(at, v, end)
			}
		case requestTypeURL:
			return text(&w.typeURL, v)
		case requestNonce:
			return text(&w.nonce, v)
		case requestDetail:
			return r.mergeDetail(v)
		case requestLocators:
			return merge(v, &discoveryv3.ResourceLocator{}) // unused, but must be well-formed
		}
		return nil
	}
	switch f {
	case deltaNode:
		return r.mergeNode(v)
	case deltaTypeURL:
		return text(&w.typeURL, v)
	case deltaSubscribe:
		if r.room(w) {
			w.add(at, v, end)
		}
	case deltaUnsubscribe:
		if r.room(w) {
			w.unsubscribed = append(w.unsubscribed, entry{name: v})
		}
	case deltaVersions:
		e, err := mapEntry(v)
		if r.room(w) {
			w.versions = append(w.versions, e)
		}
		return err
	case deltaNonce:
		return text(&w.nonce, v)
	case deltaDetail:
		return r.mergeDetail(v)
	case deltaLocators, deltaUnsubscribedLocators:
		return merge(v, &discoveryv3.ResourceLocator{})
	}
	return nil
}

// text sets a string field.
func text(to *[]byte, v []byte) error {
	if !utf8.Valid(v) {
		return errMalformed
	}
	*to = v
	return nil
}

// add adds a name to subscribe to.
func (w *rawRequest) add(at int, name []byte, end int) {
	switch {
	case len(w.names) == 0:
		w.span[0] = at
	case w.span[1] != at:
		w.apart = true
	}
	w.span[1] = end
	w.names = append(w.names, entry{name: name})
}

// mapEntry decodes an entry of a map of strings.
func mapEntry(b []byte) (entry, error) {
	var e entry
	err := eachField(b, func(f protowire.Number, _ int, v []byte, _ int) error {
		switch {
		case f == mapKey && e.name == nil:
			e.name = v
		case f == mapValue && e.version == nil:
			e.version = v
		case f == mapKey: // the last value takes effect, but all must be valid UTF-8
			return cmp.Or(text(&e.name, e.name), text(&e.name, v))
		case f == mapValue:
			return cmp.Or(text(&e.version, e.version), text(&e.version, v))
		}
		return nil
	})
	return e, err
}

func (r *Request) mergeDetail(b []byte) error {
	if r.Detail == nil {
		r.Detail = &rpcstatus.Status{}
	}
	return merge(b, r.Detail)
}

// mergeNode decodes the node. Its extensions, which are half of its bytes and equal for all Envoys of a build, are
// reduced to capabilities, once for each distinct list.
func (r *Request) mergeNode(b []byte) error {
	if r.Node == nil {
		r.Node = &corev3.Node{}
	}
	h := sha256.New() // collision-resistant, so that clients cannot get each other's capabilities
	rest, kept := make([]byte, 0, 4<<10), 0
	err := eachField(b, func(f protowire.Number, at int, _ []byte, end int) error {
		if f == nodeExtensions {
			rest = append(rest, b[kept:at]...)
			kept = end
			_, _ = h.Write(b[at:end]) // never fails
		}
		return nil
	})
	if err != nil {
		return err
	}
	if kept > 0 {
		sum := [sha256.Size]byte(h.Sum(nil))
		known, ok := r.Interner.capabilities(sum)
		if !ok {
			var whole corev3.Node
			if err := merge(b, &whole); err != nil {
				return err
			}
			known = node.Extensions(whole.GetExtensions())
			r.Interner.rememberCapabilities(sum, known)
		}
		r.Capabilities |= known
	}
	return merge(append(rest, b[kept:]...), r.Node)
}

// merge decodes a nested message and merges it into m.
func merge(b []byte, m proto.Message) error {
	return proto.UnmarshalOptions{Merge: true, AllowPartial: true, RecursionLimit: protowire.DefaultRecursionLimit - 1}.Unmarshal(b, m)
}

// eachField calls visit for each length-delimited field with its begin and end. It skips other fields.
func eachField(b []byte, visit func(f protowire.Number, at int, v []byte, end int) error) error {
	for at := 0; at < len(b); {
		// Most fields have a short tag and length.
		if tag := b[at]; tag&0x87 == byte(protowire.BytesType) && tag > 7 && at+1 < len(b) && b[at+1] < 0x80 {
			end := at + 2 + int(b[at+1])
			if end > len(b) {
				return errMalformed
			}
			if err := visit(protowire.Number(tag>>3), at, b[at+2:end], end); err != nil {
				return err
			}
			at = end
			continue
		}
		f, t, n := protowire.ConsumeTag(b[at:])
		if n < 0 || f > protowire.MaxValidNumber {
			return errMalformed
		}
		from := at + n
		if t != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(f, t, b[from:]); n < 0 {
				return errMalformed
			}
			at = from + n
			continue
		}
		v, n := protowire.ConsumeBytes(b[from:])
		if n < 0 {
			return errMalformed
		}
		if err := visit(f, at, v, from+n); err != nil {
			return err
		}
		at = from + n
	}
	return nil
}
