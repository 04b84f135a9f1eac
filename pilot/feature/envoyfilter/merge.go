package envoyfilter

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// mergeMessages merges one message into another of its type, as protobuf defines it: set fields replace those of the
// other, messages are merged, entries of maps are replaced, and lists are appended, or replaced if lists is set. So a
// wrapped number or boolean that is zero changes nothing. Unlike in protobuf, durations are replaced, and messages
// inside of google.protobuf.Any are merged if they have the same type. After an error, into is changed in part.
func mergeMessages(into, from protoreflect.Message, lists bool) error {
	if a, ok := into.Interface().(*anypb.Any); ok {
		return mergeAny(a, from.Interface().(*anypb.Any), lists)
	}
	if into.Descriptor().FullName() == "google.protobuf.Duration" {
		proto.Reset(into.Interface())
		proto.Merge(into.Interface(), from.Interface())
		return nil
	}
	fields := from.Descriptor().Fields()
	for i := range fields.Len() { // in a fixed order, because replicas must send the same bytes
		fd := fields.Get(i)
		if !from.Has(fd) {
			continue
		}
		switch v := from.Get(fd); {
		case fd.IsMap():
			m := into.Mutable(fd).Map()
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				m.Set(k, clone(fd.MapValue(), v))
				return true
			})
		case fd.IsList():
			if lists {
				into.Clear(fd)
			}
			list := into.Mutable(fd).List()
			for i := range v.List().Len() {
				list.Append(clone(fd, v.List().Get(i)))
			}
		case fd.Message() != nil && into.Has(fd):
			if err := mergeMessages(into.Mutable(fd).Message(), v.Message(), lists); err != nil {
				return err
			}
		default:
			into.Set(fd, clone(fd, v))
		}
	}
	return nil
}

// change applies f to a copy of a message and returns it, or returns the message unchanged if f fails.
func change[T proto.Message](m T, f func(T) error) error {
	made := proto.Clone(m).(T)
	if err := f(made); err != nil {
		return err
	}
	proto.Reset(m)
	proto.Merge(m, made)
	return nil
}

// clone returns a deep copy of a value of a field, or of an item of a list or a map.
func clone(fd protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	if fd.Message() != nil {
		return protoreflect.ValueOfMessage(proto.Clone(v.Message().Interface()).ProtoReflect())
	}
	return v
}

// mergeAny merges messages inside of google.protobuf.Any. A message of another type replaces the other.
func mergeAny(into, from *anypb.Any, lists bool) error {
	if into.TypeUrl == "" || into.TypeUrl != from.TypeUrl {
		into.TypeUrl, into.Value = from.TypeUrl, from.Value
		return nil
	}
	if len(from.Value) == 0 {
		return nil
	}
	was, err := into.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s cannot be merged: %w", into.TypeUrl, err)
	}
	is, err := from.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("%s cannot be merged: %w", into.TypeUrl, err)
	}
	if err := mergeMessages(was.ProtoReflect(), is.ProtoReflect(), lists); err != nil {
		return err
	}
	into.Value, err = proto.MarshalOptions{Deterministic: true}.Marshal(was)
	return err
}
