package crd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// mask is which fields of a protobuf message are kept. It works on the encoded text, so that what nobody reads, most
// of a Pod, is never decoded.
type mask struct {
	fields *fields // nil if every field is kept as it is

	// when reports whether a message in a list is kept. If when is nil, all are.
	when func(message []byte) bool
	// instead returns the mask to use for a message, or nil for this one. If instead is nil, this one is for all messages.
	instead func(message []byte) *mask
}

// fields are those that are kept, by number; of the kinds that are read so, none has a higher one.
type fields [25]*mask

// whole keeps a field as it is.
func whole() *mask { return &mask{} }

// wholes keeps the fields of those numbers as they are.
func wholes(numbers ...protowire.Number) *fields {
	out := &fields{}
	for _, n := range numbers {
		out[n] = whole()
	}
	return out
}

// apply appends to dst what is kept of a message.
func (m *mask) apply(dst, message []byte) ([]byte, error) {
	if m.fields == nil {
		return append(dst, message...), nil
	}
	err := eachField(message, func(number protowire.Number, text, value []byte) error {
		var sub *mask
		if int(number) < len(m.fields) {
			sub = m.fields[number]
		}
		if sub != nil && sub.instead != nil {
			if other := sub.instead(value); other != nil {
				sub = other
			}
		}
		switch {
		case sub == nil || sub.when != nil && !sub.when(value):
			return nil
		case sub.fields == nil:
			dst = append(dst, text...)
			return nil
		}
		dst = protowire.AppendTag(dst, number, protowire.BytesType)
		begin := len(dst)
		var err error
		if dst, err = sub.apply(dst, value); err != nil {
			return err
		}
		var size [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(size[:], uint64(len(dst)-begin))
		dst = slices.Insert(dst, begin, size[:n]...)
		return nil
	})
	return dst, err
}

// eachField visits the fields of a message: text is the whole field, value what it holds if that is a message, string
// or bytes. It stops at an error.
func eachField(message []byte, visit func(number protowire.Number, text, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return undecodable(n)
		}
		length := protowire.ConsumeFieldValue(number, kind, message[n:])
		if length < 0 {
			return undecodable(length)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[n:])
		}
		if err := visit(number, message[:n+length], value); err != nil {
			return err
		}
		message = message[n+length:]
	}
	return nil
}

// undecodable is the error that protowire names by a number. It does not wrap it: a message that ends too soon is not a
// stream that did.
func undecodable(n int) error {
	return errors.New("decode protobuf: " + protowire.ParseError(n).Error())
}

// fieldOf returns the last field of that number in a message, as the rules of protobuf want, or nil.
func fieldOf(message []byte, number protowire.Number) (out []byte) {
	_ = eachField(message, func(n protowire.Number, _, value []byte) error {
		if n == number {
			out = value
		}
		return nil
	})
	return out
}

// keyed keeps the entries of a map whose key is to be kept.
func keyed(keep func(key []byte) bool) *mask {
	return &mask{when: func(entry []byte) bool { return keep(fieldOf(entry, 1)) }}
}

func isKey(key string) func([]byte) bool {
	return func(k []byte) bool { return bytes.Equal(k, []byte(key)) }
}
