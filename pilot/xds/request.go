package xds

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
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// request is a DiscoveryRequest or DeltaDiscoveryRequest. It is decoded by hand: most lists of names and versions
// repeat what other clients sent, and are looked up without making a string of any name. Rare fields and nested
// messages are left to the generated code. Bytes are refused exactly where the generated types refuse them.
type request struct {
	delta    bool
	interner *nameInterner
	limits   *limits.Limits
	recent   *recent // nil: nothing is remembered of the requests before

	size         int
	node         *corev3.Node      // without its extensions
	capabilities node.Capabilities // by its extensions
	typeURL      string
	nonce        string
	resumes      bool // state of the world: it names a version
	detail       *rpcstatus.Status
	names        requestNames // subscribed to
	unsubscribed requestNames // delta: unsubscribed from
	versions     initialVersions
	fault        error // a limit that the client broke
}

// asks reports whether a request does more than acknowledge or reject a response.
func (r *request) asks() bool {
	return r.nonce == "" || !r.names.empty() || !r.unsubscribed.empty()
}

// requestNames are the names in a request.
type requestNames struct {
	names *envoy.Names // without the wildcard
	star  bool
}

// empty reports whether there are none, not even star.
func (n requestNames) empty() bool { return n.names == nil && !n.star }

// star subscribes to everything of a type.
const star = "*"

// Field numbers of the two requests that are not those of the responses, and of Node.
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

// rawRequest is the fields of a request as slices of its bytes, valid until it is decoded.
type rawRequest struct {
	bytes                         []byte // buffer for a request that came in several slices
	typeURL, nonce, version       []byte
	names, unsubscribed, versions []entry
	span                          [2]int // from the first name to the last, if they are contiguous
	apart                         bool   // the names are not contiguous
}

// unmarshal reads a message. An error says that it is none; what breaks a limit is a fault.
func (r *request) unmarshal(data mem.BufferSlice) error {
	w := r.interner.scratch()
	defer r.interner.release(w)
	if len(data) == 1 {
		return r.decode(w, data[0].ReadOnlyData())
	}
	w.bytes = slices.Grow(w.bytes[:0], data.Len())[:data.Len()]
	data.CopyTo(w.bytes)
	return r.decode(w, w.bytes)
}

func (r *request) decode(w *rawRequest, b []byte) error {
	r.size = len(b)
	if err := eachField(b, func(f protowire.Number, at int, v []byte, end int) error { return r.field(w, f, at, v, end) }); err != nil {
		return err
	}
	r.typeURL, r.nonce, r.resumes = envoy.TypeURL(w.typeURL), string(w.nonce), len(w.version) > 0
	if !r.room(w) {
		return nil
	}
	if err := r.subscribed(w, b); err != nil {
		return err
	}
	var err error
	if r.unsubscribed, err = r.interner.intern(w.unsubscribed, r.check); err != nil {
		return err
	}
	r.versions, err = r.interner.initialVersions(r.typeURL, w.versions)
	return err
}

// recent is a stream's most recent lists of names, by a hash of their bytes: clients that repeat all names in each
// request write them alike. A collision harms only the client that causes it.
type recent struct {
	next  int
	lists [4]recentNames
}

type recentNames struct {
	hash  uint64
	size  int
	names weak.Pointer[envoy.Names]
	star  bool
}

func (r *request) subscribed(w *rawRequest, b []byte) (err error) {
	if r.recent == nil || w.apart || len(w.names) < r.interner.few {
		r.names, err = r.interner.intern(w.names, r.check)
		return err
	}
	span := b[w.span[0]:w.span[1]]
	is := recentNames{hash: maphash.Bytes(r.interner.seed, span), size: len(span)}
	for _, was := range r.recent.lists {
		if was.hash == is.hash && was.size == is.size {
			if n := was.names.Value(); n != nil {
				r.names = requestNames{n, was.star}
				return nil
			}
		}
	}
	if r.names, err = r.interner.intern(w.names, r.check); err == nil && r.names.names != nil {
		is.names, is.star = weak.Make(r.names.names), r.names.star
		r.recent.lists[r.recent.next] = is
		r.recent.next = (r.recent.next + 1) % len(r.recent.lists)
	}
	return err
}

// room reports whether the request is still within the limits. Nothing beyond them is kept.
func (r *request) room(w *rawRequest) bool {
	switch {
	case r.fault != nil:
	case len(w.names)+len(w.unsubscribed) > r.limits.NamesPerRequest:
		r.fault = fmt.Errorf("more than %d resource names in one request", r.limits.NamesPerRequest)
	case len(w.versions) > r.limits.NamesPerStream:
		r.fault = fmt.Errorf("versions of more than %d resources in one request", r.limits.NamesPerStream)
	}
	return r.fault == nil
}

// check checks a name that is in no known list against the limits.
func (r *request) check(name []byte) bool {
	if len(name) > r.limits.NameLength {
		r.fault = fmt.Errorf("resource name %.64q… has %d bytes, more than %d", name, len(name), r.limits.NameLength)
	} else if i := bytes.IndexFunc(name, unicode.IsControl); i >= 0 {
		r.fault = fmt.Errorf("resource name %.64q has a control character at byte %d", name, i)
	}
	return r.fault == nil
}

// field takes one length-delimited field. Unknown fields are skipped.
func (r *request) field(w *rawRequest, f protowire.Number, at int, v []byte, end int) error {
	if !r.delta {
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
			return merge(v, &discoveryv3.ResourceLocator{}) // of no use, but refused if it is none
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

// text takes a string.
func text(to *[]byte, v []byte) error {
	if !utf8.Valid(v) {
		return errMalformed
	}
	*to = v
	return nil
}

// add takes a name that is subscribed to.
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

// mapEntry reads one entry of a map of strings.
func mapEntry(b []byte) (entry, error) {
	var e entry
	err := eachField(b, func(f protowire.Number, _ int, v []byte, _ int) error {
		switch {
		case f == mapKey && e.name == nil:
			e.name = v
		case f == mapValue && e.version == nil:
			e.version = v
		case f == mapKey: // the last counts, but all have to be text
			return cmp.Or(text(&e.name, e.name), text(&e.name, v))
		case f == mapValue:
			return cmp.Or(text(&e.version, e.version), text(&e.version, v))
		}
		return nil
	})
	return e, err
}

func (r *request) mergeDetail(b []byte) error {
	if r.detail == nil {
		r.detail = &rpcstatus.Status{}
	}
	return merge(b, r.detail)
}

// mergeNode decodes the node. Its extensions, half of its bytes and the same for all Envoys of a build, are reduced to
// capabilities, once for each distinct list.
func (r *request) mergeNode(b []byte) error {
	if r.node == nil {
		r.node = &corev3.Node{}
	}
	h := sha256.New() // a client must not get what another's extensions are capable of
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
		known, ok := r.interner.capabilities(sum)
		if !ok {
			var whole corev3.Node
			if err := merge(b, &whole); err != nil {
				return err
			}
			known = node.Extensions(whole.GetExtensions())
			r.interner.rememberCapabilities(sum, known)
		}
		r.capabilities |= known
	}
	return merge(append(rest, b[kept:]...), r.node)
}

// merge reads a message inside the request into what came of it before.
func merge(b []byte, m proto.Message) error {
	return proto.UnmarshalOptions{Merge: true, AllowPartial: true, RecursionLimit: protowire.DefaultRecursionLimit - 1}.Unmarshal(b, m)
}

// eachField calls visit for each length-delimited field with its begin and end. Other fields are skipped.
func eachField(b []byte, visit func(f protowire.Number, at int, v []byte, end int) error) error {
	for at := 0; at < len(b); {
		// most are short
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
