package dns

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// NameTable is the message istio.networking.nds.v1.NameTable: the addresses of the names in the mesh.
type NameTable struct {
	Table map[string]*NameInfo `json:"table,omitempty"`
}

// NameInfo describes one name.
type NameInfo struct {
	IPs      []string `json:"ips,omitempty"`
	Registry string   `json:"registry,omitempty"` // "Kubernetes" or "External"
	// ShortName and Namespace are set for Kubernetes services, which are also known without their domain.
	ShortName string `json:"shortname,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// AltHosts are other names for the same service. If there are any, no short names are derived.
	AltHosts []string `json:"altHosts,omitempty"`
}

// NameTableType is the type URL by which agents subscribe to the table.
const NameTableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"

// Decode parses the wire format of a NameTable. No dependency of this module has the message.
func Decode(b []byte) (*NameTable, error) {
	t := &NameTable{Table: map[string]*NameInfo{}}
	err := fields(b, func(n protowire.Number, entry []byte) error {
		if n != 1 {
			return nil
		}
		name, info := "", &NameInfo{}
		err := fields(entry, func(n protowire.Number, v []byte) error {
			switch n {
			case 1:
				name = string(v)
			case 2:
				return info.decode(v)
			}
			return nil
		})
		t.Table[name] = info
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("failed to decode the name table: %w", err)
	}
	return t, nil
}

func (i *NameInfo) decode(b []byte) error {
	return fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 1:
			i.IPs = append(i.IPs, string(v))
		case 2:
			i.Registry = string(v)
		case 3:
			i.ShortName = string(v)
		case 4:
			i.Namespace = string(v)
		case 5:
			i.AltHosts = append(i.AltHosts, string(v))
		}
		return nil
	})
}

// fields calls each with the number and value of the length-delimited fields of a message, and skips all others.
func fields(b []byte, each func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
				return protowire.ParseError(size)
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := each(n, v); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// JSON returns the table as indented JSON with sorted names. It returns nil for a nil table.
func (t *NameTable) JSON() []byte {
	if t == nil {
		return nil
	}
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil { // unreachable: it contains only text
		return []byte("{}")
	}
	return b
}

// names returns the names of the table, sorted.
func (t *NameTable) names() []string { return slices.Sorted(maps.Keys(t.Table)) }
