package nds

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// The message istio.networking.nds.v1.NameTable is in no required module, so it is written in the wire format. It is a
// map from names to NameInfos. Two concatenated tables are the table of both.
const (
	tableField = 1 // NameTable.table

	keyField   = 1 // in an entry of a map
	valueField = 2

	addressField   = 1 // NameInfo.ips
	registryField  = 2
	shortNameField = 3
	namespaceField = 4
)

// buildHost makes the part of a table for one host.
func buildHost(k hostKey) *envoy.Resource {
	var b []byte
	for n := range k.names.All {
		var info []byte
		for a := range strings.SplitSeq(strings.TrimSuffix(n.addresses, "\n"), "\n") {
			info = appendText(info, addressField, a)
		}
		info = appendText(info, registryField, n.registry)
		info = appendText(info, shortNameField, n.shortName)
		info = appendText(info, namespaceField, n.namespace)
		entry := protowire.AppendBytes(protowire.AppendTag(appendText(nil, keyField, n.name), valueField, protowire.BytesType), info)
		b = protowire.AppendBytes(protowire.AppendTag(b, tableField, protowire.BytesType), entry)
	}
	return envoy.RawResource(k.part, envoy.NameTableType, b)
}

// buildTable makes a table from its parts.
func buildTable(k tableKey) *envoy.Resource {
	return envoy.RawResource("", envoy.NameTableType, []byte(k.encoded))
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// Info is the entry of a name in a name table. Its JSON names are the message's field names.
type Info struct {
	Addresses []string `json:"ips,omitempty"`
	Registry  string   `json:"registry,omitempty"`
	ShortName string   `json:"shortname,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
}

// Read decodes a name table. If a name is repeated, the last entry is used.
func Read(table []byte) (map[string]Info, error) {
	names := map[string]Info{}
	err := eachField(table, func(_ protowire.Number, entry []byte) error {
		var name string
		var info Info
		err := eachField(entry, func(field protowire.Number, value []byte) error {
			if field == keyField {
				name = string(value)
				return nil
			}
			return eachField(value, info.set)
		})
		names[name] = info
		return err
	})
	return names, err
}

func (i *Info) set(field protowire.Number, value []byte) error {
	switch field {
	case addressField:
		i.Addresses = append(i.Addresses, string(value))
	case registryField:
		i.Registry = string(value)
	case shortNameField:
		i.ShortName = string(value)
	case namespaceField:
		i.Namespace = string(value)
	}
	return nil
}

// eachField calls visit for each field of a message. All fields of these messages are length-delimited.
func eachField(b []byte, visit func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			return fmt.Errorf("name table: field %d has wire type %d", field, kind)
		}
		value, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return fmt.Errorf("name table: field %d: %w", field, protowire.ParseError(m))
		}
		if err := visit(field, value); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}
