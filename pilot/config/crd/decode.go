package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// item is one object of an API server's response. The feed decodes it if it differs from the last version. Of
// metav1.Object it implements only the methods that a reflector calls.
type item struct {
	metav1.Object
	name        name // empty for a bookmark
	version     string
	end         bool          // the bookmark ends the initial list
	data        []byte        // masked protobuf of a core object, or JSON of another object
	object      *kinds.Object // decoded core object; replaces data
	fingerprint uint64        // hash of the parts of the object that are read; 0 if unknown
	uid         string        // of an object that is not a core object
	generation  int64         // of an object that is not a core object
	manager     string        // who wrote a core object last, if known
	managed     time.Time     // time of that write
}

func (i *item) GetNamespace() string             { return i.name.namespace }
func (i *item) GetName() string                  { return i.name.name }
func (i *item) GetResourceVersion() string       { return i.version }
func (i *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetAnnotations returns the annotation that ends the initial list of a stream.
func (i *item) GetAnnotations() map[string]string {
	if i.end {
		return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return nil
}

// DeepCopyObject returns the item itself, which is immutable.
func (i *item) DeepCopyObject() runtime.Object { return i }

// itemList is the response to a list.
type itemList struct {
	metav1.ListMeta
	Items []runtime.Object
}

// GetObjectKind returns an empty kind, which reflectors accept.
func (l *itemList) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the list itself.
func (l *itemList) DeepCopyObject() runtime.Object { return l }

// itemFunc makes an item of an encoded object. It must not retain data.
type itemFunc func(data []byte, protobuf bool) (*item, error)

// envelopePrefix begins every protobuf message of the Kubernetes API. An envelope follows, with the kind in field 1 and
// the object in field 2.
const envelopePrefix = "k8s\x00"

func openEnvelope(data []byte) (object []byte, protobuf bool) {
	if envelope, ok := bytes.CutPrefix(data, []byte(envelopePrefix)); ok {
		return fieldOf(envelope, 2), true
	}
	return data, false
}

// readObject decodes the object of an event.
func readObject(data []byte, f itemFunc) (*item, error) {
	object, protobuf := openEnvelope(data)
	return f(object, protobuf)
}

// readStatus decodes the reason why a stream ends.
func readStatus(data []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	object, protobuf := openEnvelope(data)
	if protobuf {
		return status, status.Unmarshal(object)
	}
	return status, json.Unmarshal(object, status)
}

// readList decodes the response to a list.
func readList(data []byte, f itemFunc) (*itemList, error) {
	out := &itemList{}
	add := func(object []byte, protobuf bool) error {
		it, err := f(object, protobuf)
		if err == nil {
			out.Items = append(out.Items, it)
		}
		return err
	}
	list, protobuf := openEnvelope(data)
	if protobuf {
		// All lists have their metadata as field 1 and the items as field 2.
		return out, eachField(list, func(number protowire.Number, _, value []byte) error {
			switch number {
			case 1:
				return out.ListMeta.Unmarshal(value)
			case 2:
				return add(value, true)
			}
			return nil
		})
	}
	var text struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return nil, fmt.Errorf("decode a list: %w", err)
	}
	if !strings.HasSuffix(text.Kind, "List") {
		return nil, fmt.Errorf("decode a list: the answer is of kind %q", text.Kind)
	}
	out.ListMeta = text.Metadata
	for _, object := range text.Items {
		if err := add(object, false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readMetadata makes items that have only a name.
func readMetadata(data []byte, protobuf bool) (*item, error) {
	if protobuf {
		return readHead(data)
	}
	it, _, err := readJSONHead(data)
	return it, err
}

// readHead decodes the metadata of an object in protobuf that a reflector reads.
func readHead(object []byte) (*item, error) {
	it := &item{}
	err := eachField(fieldOf(object, 1), func(number protowire.Number, _, value []byte) error {
		switch number {
		case 1:
			it.name.name = string(value)
		case 3:
			it.name.namespace = string(value)
		case 6:
			it.version = string(value)
		case 12:
			it.end = it.end || string(fieldOf(value, 1)) == metav1.InitialEventsAnnotationKey && string(fieldOf(value, 2)) == "true"
		}
		return nil
	})
	return it, err
}

// customHead has the fields in which two versions of an object can differ for readers.
type customHead struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Generation      int64             `json:"generation"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status json.RawMessage `json:"status"`
}

func readJSONHead(data []byte) (*item, *customHead, error) {
	head := &customHead{}
	if err := json.Unmarshal(data, head); err != nil {
		return nil, nil, fmt.Errorf("decode the metadata of an object: %w", err)
	}
	m := &head.Metadata
	return &item{
		name: name{m.Namespace, m.Name}, version: m.ResourceVersion, uid: m.UID, generation: m.Generation,
		end: m.Annotations[metav1.InitialEventsAnnotationKey] == "true",
	}, head, nil
}

// item is the itemFunc of a feed.
func (f *feed) item(data []byte, protobuf bool) (*item, error) {
	if f.core == nil {
		if protobuf {
			return nil, fmt.Errorf("%s came as protobuf, which was not asked for", f.kind.Name)
		}
		it, head, err := readJSONHead(data)
		if err == nil && it.name.name != "" {
			it.fingerprint, it.data = f.fingerprint(head), bytes.Clone(data)
		}
		return it, err
	}
	if !protobuf {
		var err error
		if data, err = f.core.protobuf(data); err != nil {
			return nil, fmt.Errorf("decode a %s: %w", f.kind.Name, err)
		}
	}
	it, err := readHead(data)
	if err != nil || it.name.name == "" {
		return it, err
	}
	f.decoding.Lock()
	defer f.decoding.Unlock()
	if cap(f.masked) > maskedMax {
		f.masked = nil
	}
	f.masked, err = f.core.mask.apply(f.masked[:0], data)
	if err != nil {
		return it, err
	}
	it.fingerprint = maphash.Bytes(f.s.seed, f.masked)
	if f.loaded.Load() {
		if f.s.opts.Writes != nil && !f.kind.IsWorkload() {
			it.manager, it.managed = managerIn(data)
		}
		it.data = bytes.Clone(f.masked) // most events do not change the masked object
		return it, nil
	}
	object, err := f.decode(f.masked)
	if err != nil {
		it.data = bytes.Clone(f.masked) // the feed decodes it again and reports the error
		return it, nil
	}
	it.object, it.name = object, name{object.Namespace, object.Name}
	return it, nil
}

// maskedMax bounds the buffer for masked objects that is kept, in bytes.
const maskedMax = 64 << 10

// object decodes a core object.
func (f *feed) object(it *item) (*kinds.Object, error) {
	if it.object != nil {
		return it.object, nil
	}
	f.decoding.Lock()
	defer f.decoding.Unlock()
	return f.decode(it.data)
}

func (f *feed) decode(masked []byte) (*kinds.Object, error) {
	h, spec, err := f.core.decode(masked, f.intern)
	if err != nil {
		return nil, fmt.Errorf("decode a %s: %w", f.kind.Name, err)
	}
	return &kinds.Object{
		Key: f.key(h.name), UID: h.uid, Labels: h.labels, Annotations: h.annotations, Created: h.created, Spec: spec,
	}, nil
}

// judge validates an object. A panic affects only that object.
func (f *feed) judge(it *item) validation.Document {
	key := f.key(it.name)
	var doc validation.Document
	if err := safe.Do("crd validation", func() { doc = validation.Object(f.s.opts.Limits, f.kind, it.data) }); err != nil {
		f.s.opts.Logger.Error(
			"recovered from a panic", "kind", f.kind.Name, "ns", key.Namespace, "name", key.Name, "err", err, "stack",
			string(err.(*safe.Panic).Stack),
		)
		doc = validation.Document{
			Findings: []diag.Diagnostic{{
				Severity: diag.Error, Code: "Internal",
				Message: "the object could not be judged: a fault of the server", Fix: "report it, with the object",
			}},
		}
		_ = safe.Do("crd validation", func() { doc.Kept = validation.Closed(f.s.opts.Limits, f.kind, it.data) })
	}
	for i := range doc.Findings {
		doc.Findings[i].Object = key.String()
	}
	return doc
}

// fingerprint returns a hash of the metadata and status that are read, and of the generation, which stands for the
// spec. It is 0 if the API server sets no generation.
func (f *feed) fingerprint(head *customHead) uint64 {
	m := &head.Metadata
	if m.Generation == 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(f.s.seed)
	word := func(words ...string) {
		for _, w := range words {
			_, _ = h.WriteString(w)
			_ = h.WriteByte(0)
		}
	}
	word(m.UID)
	maphash.WriteComparable(&h, m.Generation)
	for _, set := range []map[string]string{m.Labels, m.Annotations} {
		maphash.WriteComparable(&h, len(set))
		for _, k := range slices.Sorted(maps.Keys(set)) {
			if k != corev1.LastAppliedConfigAnnotation {
				word(k, set[k])
			}
		}
	}
	if f.kind == kinds.WorkloadEntry || f.kind == kinds.ServiceEntry || f.kind.IsGatewayAPI() {
		word(string(head.Status))
	}
	return h.Sum64()
}
