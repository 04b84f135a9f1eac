package translate_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// mutation changes messages at random.
type mutation struct{ *rand.Rand }

// change changes one field of a message, or of one that the message holds.
func (g *mutation) change(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	if fields.Len() == 0 || depth > 12 {
		return
	}
	fd := fields.Get(g.IntN(fields.Len()))
	// Most changes are made where there is something already.
	var set []protoreflect.FieldDescriptor
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool { set = append(set, fd); return true })
	slices.SortFunc(set, func(a, b protoreflect.FieldDescriptor) int { return a.Index() - b.Index() })
	if len(set) > 0 && g.IntN(3) > 0 {
		fd = set[g.IntN(len(set))]
	}
	if g.IntN(12) == 0 {
		m.Clear(fd)
		return
	}
	nested := fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf"
	switch {
	case fd.Name() == "inline_code": // a script is up to its author
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		key := keyOf(fd, entries)
		if fd.MapKey().Kind() == protoreflect.StringKind && g.IntN(2) == 0 {
			key = protoreflect.ValueOfString(g.text()).MapKey()
		}
		if v := fd.MapValue(); v.Message() != nil && v.Message().ParentFile().Package() != "google.protobuf" {
			g.change(entries.Mutable(key).Message(), depth+1)
		} else if value := g.value(v); value.IsValid() {
			entries.Set(key, value)
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		switch {
		case list.Len() > 0 && g.IntN(8) == 0: // once more
			v := list.Get(g.IntN(list.Len()))
			if fd.Message() != nil {
				v = protoreflect.ValueOfMessage(proto.Clone(v.Message().Interface()).ProtoReflect())
			}
			list.Append(v)
		case nested && (list.Len() == 0 || g.IntN(4) == 0):
			g.change(list.AppendMutable().Message(), depth+1)
		case nested:
			g.change(list.Get(g.IntN(list.Len())).Message(), depth+1)
		default:
			if v := g.value(fd); v.IsValid() {
				if list.Len() > 0 && g.IntN(2) == 0 {
					list.Set(g.IntN(list.Len()), v)
				} else {
					list.Append(v)
				}
			}
		}
	case nested && g.IntN(10) == 0:
		m.Set(fd, m.NewField(fd))
	case nested:
		g.change(m.Mutable(fd).Message(), depth+1)
	default:
		if v := g.value(fd); v.IsValid() {
			m.Set(fd, v)
		}
	}
}

// value returns a value of a field that is no message of its own, or an invalid one if there is none to draw.
func (g *mutation) value(fd protoreflect.FieldDescriptor) protoreflect.Value {
	whole := []int64{0, 1, 2, 3, 7, 80, 100, 200, 302, 443, 503, 600, 8080, 9000, 65535, 65536, 1 << 20, math.MaxInt32, -1}
	n := whole[g.IntN(len(whole))]
	broken := []float64{0, 0.1, 0.5, 1, 3, 50, 99.99, 100, 100.1, -1, 1e-9, 1e12, math.NaN(), math.Inf(1)}[g.IntN(14)]
	message := func(m proto.Message) protoreflect.Value { return protoreflect.ValueOfMessage(m.ProtoReflect()) }
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(g.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(g.IntN(fd.Enum().Values().Len())).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(g.text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(g.text()))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(broken)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(broken))
	case protoreflect.MessageKind:
		switch fd.Message().FullName() {
		case "google.protobuf.Duration":
			times := []time.Duration{0, 1, 999999, time.Millisecond, 1500 * time.Microsecond, time.Second, 3 * time.Second, time.Hour,
				24 * time.Hour, 1 << 40, math.MaxInt64, -1, -time.Second}
			if g.IntN(10) == 0 {
				return message(&durationpb.Duration{Seconds: 315576000000})
			}
			return message(durationpb.New(times[g.IntN(len(times))]))
		case "google.protobuf.BoolValue":
			return message(wrapperspb.Bool(g.IntN(2) == 0))
		case "google.protobuf.Int32Value":
			return message(wrapperspb.Int32(int32(n)))
		case "google.protobuf.UInt32Value":
			return message(wrapperspb.UInt32(uint32(n)))
		case "google.protobuf.Int64Value":
			return message(wrapperspb.Int64(n))
		case "google.protobuf.UInt64Value":
			return message(wrapperspb.UInt64(uint64(n)))
		case "google.protobuf.DoubleValue":
			return message(wrapperspb.Double(broken))
		case "google.protobuf.StringValue":
			return message(wrapperspb.String(g.text()))
		}
	}
	return protoreflect.Value{}
}

// text returns a text that means something in some field, or has signs that do.
func (g *mutation) text() string {
	texts := []string{
		"x", "web", "other", "v1", "other.a.svc.cluster.local", "web.a.svc.cluster.local", "10.0.0.7", "10.9.0.0/16", "8088", "80", "a",
		"b", ".", "./*", "b/*", "*/*", "~/*", "HTTP", "TCP", "HTTPS", "TLS", "MONGO", "GRPC",
		"ingress", "mesh", "far", "delegate", "UNAVAILABLE", "unix:///x", "unix://@x", "region1/zone2", "POST", "*", "*.example.com",
		"*.web", "a.example.com", "*-x.example.com", "fd00::1", "[fd00::1]", "::/0", "0.0.0.0/0", "10.0.0.1/33",
		"%", "%%", "%REQ(x)%", "%REQ(", "%DOWNSTREAM_REMOTE_ADDRESS%", "a b", "x:y", ":path", ":authority", ":method", "host", "Host",
		"HOST", "x-envoy-retry-on", "x-istio-attributes", "connection", "content-length", "{", "{*}", "/{a}/{**}", "/x", "/x/", "/x?y",
		"/x#y", "(", "a(b", "[a-z]+", "a{1001}",
		"\\1", "\\9", "^/x$", "", "ä", "\n", "\x00", "\t", " ", "-1", "0", "65536", "1.5", "60s", "ECDHE-RSA-AES128-GCM-SHA256", "DES",
		"GET", "grpc", "istio", "outbound|80||web.a.svc.cluster.local", "/etc/certs/a.pem", "system",
		"CANCELLED", "5xx", "retriable-4xx,503", "connect-failure,refused-stream", "unknown", "https://x/y", "http://[",
		"@request.auth.claims.sub", "@request.auth.claims[a][b]", "topology.kubernetes.io/zone", "spiffe://cluster.local/ns/a/sa/b",
		"kubernetes://x", "configmap://x", "x/y", "a/gateway",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "response.code == 200", "response.code ==",
		"request.headers['x']", "GATEWAY", "DURATION", "Gw==", "a.b.c.d.e", "A.example.COM", "a..b", "-a.b", "a_b.example.com",
		"source.ip", "request.headers[x]", "request.auth.claims[x]", "connection.sni",
	}
	if g.IntN(12) == 0 {
		return texts[g.IntN(len(texts))] + texts[g.IntN(len(texts))]
	}
	return texts[g.IntN(len(texts))]
}
