package dns

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// NameTable is the message istio.networking.nds.v1.NameTable: what the names of the mesh resolve to.
type NameTable struct {
	Table map[string]*NameInfo `json:"table,omitempty"`
}

// NameInfo is what is known of one name.
type NameInfo struct {
	IPs      []string `json:"ips,omitempty"`
	Registry string   `json:"registry,omitempty"` // "Kubernetes" or "External"
	// ShortName and Namespace are set for names that are known without their domain: those of Kubernetes.
	ShortName string   `json:"shortname,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	AltHosts  []string `json:"altHosts,omitempty"` // other names for the same; with them, short names are not derived
}

// NameTableType is the type URL by which agents subscribe to the table.
const NameTableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"

// Decode reads a NameTable from its wire format. No module that this one requires has the message.
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
		return nil, fmt.Errorf("decode the name table: %w", err)
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

// fields calls each for the fields of a message that have a length, and skips all others.
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

// JSON returns the table as JSON, with sorted names; for people. Without a table it is nil.
func (t *NameTable) JSON() []byte {
	if t == nil {
		return nil
	}
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil { // it has nothing but text
		return []byte("{}")
	}
	return b
}

// names returns the names of the table, sorted.
func (t *NameTable) names() []string { return slices.Sorted(maps.Keys(t.Table)) }
