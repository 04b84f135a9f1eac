package diff

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Field is one field of a resource that differs.
type Field struct {
	Path string `json:"path"`          // virtualHosts[web].routes[0].route.timeout
	Had  string `json:"had,omitempty"` // empty if it was not set
	Has  string `json:"has,omitempty"` // empty if it is not set
}

// Fields returns the fields in which a changed resource differs, and none for an added or removed one. It does not show
// the content of secrets.
func (x *Change) Fields() ([]Field, error) {
	if x.Had == nil || x.Has == nil {
		return nil, nil
	}
	if x.Had.Secret() || x.Has.Secret() {
		return []Field{{Path: "(its content, which is secret)"}}, nil
	}
	had, err := message(x.typeURL, x.Had)
	if errors.Is(err, protoregistry.NotFound) { // name tables: their Go package is not linked
		return []Field{{Path: "(its content)", Had: size(x.Had), Has: size(x.Has)}}, nil
	}
	if err != nil {
		return nil, err
	}
	has, err := message(x.typeURL, x.Has)
	if err != nil {
		return nil, err
	}
	var f fields
	f.messages("", had.ProtoReflect(), has.ProtoReflect())
	return f.list, nil
}

func size(r *envoy.Resource) string { return strconv.Itoa(r.Size()) + " bytes" }

func message(typeURL string, r *envoy.Resource) (proto.Message, error) {
	m, err := (&anypb.Any{TypeUrl: typeURL, Value: r.Value()}).UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Name, err)
	}
	return m, nil
}

type fields struct{ list []Field }

func (f *fields) add(path, had, has string) {
	f.list = append(f.list, Field{strings.TrimPrefix(path, "."), had, has})
}

func (f *fields) messages(path string, had, has protoreflect.Message) {
	if proto.Equal(had.Interface(), has.Interface()) {
		return
	}
	if a, ok := had.Interface().(*anypb.Any); ok {
		b := has.Interface().(*anypb.Any)
		x, errA := a.UnmarshalNew()
		y, errB := b.UnmarshalNew()
		if errA != nil || errB != nil || a.TypeUrl != b.TypeUrl {
			f.add(path, text(had), text(has))
			return
		}
		f.messages(path, x.ProtoReflect(), y.ProtoReflect())
		return
	}
	if strings.HasPrefix(string(had.Descriptor().FullName()), "google.protobuf.") { // well-known types have a text form of their own
		f.add(path, text(had), text(has))
		return
	}
	all := had.Descriptor().Fields()
	for i := range all.Len() {
		d := all.Get(i)
		at := path + "." + d.JSONName()
		was, is := had.Has(d), has.Has(d)
		switch {
		case !was && !is:
		case !was || !is:
			f.add(at, value(d, had.Get(d), was), value(d, has.Get(d), is))
		case d.IsMap():
			f.maps(at, d, had.Get(d).Map(), has.Get(d).Map())
		case d.IsList():
			f.lists(at, d, had.Get(d).List(), has.Get(d).List())
		case d.Message() != nil:
			f.messages(at, had.Get(d).Message(), has.Get(d).Message())
		case !had.Get(d).Equal(has.Get(d)):
			f.add(at, value(d, had.Get(d), true), value(d, has.Get(d), true))
		}
	}
}

func (f *fields) maps(path string, d protoreflect.FieldDescriptor, had, has protoreflect.Map) {
	keys := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{had, has} {
		m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys[k.String()] = k
			return true
		})
	}
	for _, n := range slices.Sorted(maps.Keys(keys)) {
		f.element(path+"["+n+"]", d.MapValue(), had.Get(keys[n]), has.Get(keys[n]))
	}
}

// element compares two elements of a list or a map. Either may be absent.
func (f *fields) element(path string, d protoreflect.FieldDescriptor, had, has protoreflect.Value) {
	switch {
	case !had.IsValid() || !has.IsValid():
		f.add(path, single(d, had), single(d, has))
	case d.Message() != nil:
		f.messages(path, had.Message(), has.Message())
	case !had.Equal(has):
		f.add(path, single(d, had), single(d, has))
	}
}

// lists compares lists. Elements with names are matched by name. Others are compared in order, without the equal ones
// at both ends.
func (f *fields) lists(path string, d protoreflect.FieldDescriptor, had, has protoreflect.List) {
	if d.Message() != nil {
		was, is := labels(had), labels(has)
		if was != nil && is != nil {
			f.named(path, d, had, has, was, is)
			return
		}
	}
	from, endHad, endHas := 0, had.Len(), has.Len()
	same := func(i, j int) bool { return had.Get(i).Equal(has.Get(j)) }
	for from < endHad && from < endHas && same(from, from) {
		from++
	}
	for endHad > from && endHas > from && same(endHad-1, endHas-1) {
		endHad, endHas = endHad-1, endHas-1
	}
	for i := from; i < max(endHad, endHas); i++ {
		var a, b protoreflect.Value
		if i < endHad {
			a = had.Get(i)
		}
		if i < endHas {
			b = has.Get(i)
		}
		f.element(path+"["+strconv.Itoa(i)+"]", d, a, b)
	}
}

func (f *fields) named(path string, d protoreflect.FieldDescriptor, had, has protoreflect.List, was, is []string) {
	for i, name := range was {
		var b protoreflect.Value
		if j := slices.Index(is, name); j >= 0 {
			b = has.Get(j)
		}
		f.element(path+"["+name+"]", d, had.Get(i), b)
	}
	for j, name := range is {
		if !slices.Contains(was, name) {
			f.element(path+"["+name+"]", d, protoreflect.Value{}, has.Get(j))
		}
	}
	keep := func(list, of []string) []string {
		return lists.Filter(list, func(n string) bool { return slices.Contains(of, n) })
	}
	if a, b := keep(was, is), keep(is, was); !slices.Equal(a, b) {
		f.add(path+" (their order)", strings.Join(a, ", "), strings.Join(b, ", "))
	}
}

// labels returns names that identify the elements of a list: their names, or the addresses of endpoints. It is nil if
// an element has none or two are equal.
func labels(l protoreflect.List) []string {
	list := make([]string, 0, l.Len())
	for i := range l.Len() {
		m := l.Get(i).Message()
		d := m.Descriptor().Fields()
		name := ""
		if n := d.ByName("name"); n != nil && n.Kind() == protoreflect.StringKind && !n.IsList() {
			name = m.Get(n).String()
		} else if e := d.ByName("endpoint"); e != nil && e.Message() != nil {
			name = address(m.Get(e).Message())
		}
		if name == "" || slices.Contains(list, name) {
			return nil
		}
		list = append(list, name)
	}
	return list
}

func address(endpoint protoreflect.Message) string {
	for _, step := range []protoreflect.Name{"address", "socket_address"} {
		d := endpoint.Descriptor().Fields().ByName(step)
		if d == nil || d.Message() == nil || !endpoint.Has(d) {
			return ""
		}
		endpoint = endpoint.Get(d).Message()
	}
	d := endpoint.Descriptor().Fields()
	a, p := d.ByName("address"), d.ByName("port_value")
	if a == nil || p == nil {
		return ""
	}
	return endpoint.Get(a).String() + ":" + endpoint.Get(p).String()
}

func value(d protoreflect.FieldDescriptor, v protoreflect.Value, set bool) string {
	switch {
	case !set:
		return ""
	case d.IsList():
		var list []string
		for i := range v.List().Len() {
			list = append(list, single(d, v.List().Get(i)))
		}
		return "[" + strings.Join(list, ", ") + "]"
	case d.IsMap():
		var list []string
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			list = append(list, k.String()+": "+single(d.MapValue(), v))
			return true
		})
		slices.Sort(list)
		return "{" + strings.Join(list, ", ") + "}"
	}
	return single(d, v)
}

func single(d protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case !v.IsValid():
		return ""
	case d.Message() != nil:
		return text(v.Message())
	case d.Enum() != nil:
		if e := d.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
	case d.Kind() == protoreflect.StringKind:
		return strconv.Quote(v.String())
	}
	return v.String()
}

// text returns a message as JSON on one line. It removes the spaces that protojson inserts at random.
func text(m protoreflect.Message) string {
	b, err := protojson.Marshal(m.Interface())
	if err != nil {
		return fmt.Sprintf("(%s that cannot be shown)", m.Descriptor().Name())
	}
	var out strings.Builder
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '\\' && quoted:
			out.WriteByte(b[i])
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == ' ' && !quoted:
			continue
		}
		out.WriteByte(b[i])
	}
	return out.String()
}
