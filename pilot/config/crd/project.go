package crd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// mask selects fields of a protobuf message. It works on the encoded message, so that the unused parts, which are most
// of a Pod, are never decoded.
type mask struct {
	fields *fields // selected fields; nil for all

	// when selects messages in a list. Nil for all.
	when func(message []byte) bool
	// instead returns the mask for a message, or nil for this one. Nil if this mask applies to all messages.
	instead func(message []byte) *mask
}

// fields are the masks of the selected fields, by field number. The core kinds have no higher number.
type fields [25]*mask

// whole selects a field with its whole content.
func whole() *mask { return &mask{} }

// wholes selects the fields with those numbers.
func wholes(numbers ...protowire.Number) *fields {
	out := &fields{}
	for _, n := range numbers {
		out[n] = whole()
	}
	return out
}

// apply appends the selected part of a message to dst.
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

// eachField visits the fields of a message. text is the whole field, and value its content if it is a message, string
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

// undecodable returns the error for a protowire code. It does not wrap the error, because a truncated message is not a
// truncated stream.
func undecodable(n int) error {
	return errors.New("decode protobuf: " + protowire.ParseError(n).Error())
}

// fieldOf returns the last field with that number in a message, as protobuf requires, or nil.
func fieldOf(message []byte, number protowire.Number) (out []byte) {
	_ = eachField(message, func(n protowire.Number, _, value []byte) error {
		if n == number {
			out = value
		}
		return nil
	})
	return out
}

// keyed selects map entries by key.
func keyed(keep func(key []byte) bool) *mask {
	return &mask{when: func(entry []byte) bool { return keep(fieldOf(entry, 1)) }}
}

func isKey(key string) func([]byte) bool {
	return func(k []byte) bool { return bytes.Equal(k, []byte(key)) }
}
