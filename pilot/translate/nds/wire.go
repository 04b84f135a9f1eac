package nds

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// The message istio.networking.nds.v1.NameTable is in no module that this one requires, so it is written in the wire
// format. It is a map from names to NameInfos. Two tables after one another are the table of both.
const (
	tableField = 1 // NameTable.table

	keyField   = 1 // of an entry of a map
	valueField = 2

	addressField   = 1 // NameInfo.ips
	registryField  = 2
	shortNameField = 3
	namespaceField = 4
)

// buildHost makes the part of a table that is of one host.
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

// buildTable makes a table of its parts.
func buildTable(k tableKey) *envoy.Resource {
	return envoy.RawResource("", envoy.NameTableType, []byte(k.encoded))
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
