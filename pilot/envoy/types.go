package envoy

// Type URLs that this server knows.
const (
	ClusterType     = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType    = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType       = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	SecretType      = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionType   = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	NameTableType   = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
)

// Type holds the properties of one xDS resource type.
type Type struct {
	URL   string
	Short string // label in metrics and logs; unknown types share one

	// Addition orders types in a push: a type comes after the types that it refers to. Removal orders the removals: a
	// type comes before the types that it refers to, with clusters last.
	Addition, Removal int

	// Complete says that a state-of-the-world response holds all subscribed resources, and a missing one is removed.
	// The first response is sent even if it is empty, because Envoy waits for it.
	Complete bool
	Named    bool // proxies subscribe by name; a subscription without names is empty
	Total    bool // every name exists: undefined names get an empty resource, so that Envoy does not wait
	Live     bool // may change when only endpoints change

	NamesClusters bool // its resources refer to clusters by name
	Divisible     bool // its resources have parts, to which a delta client may subscribe
	Part          bool // its resources are such parts; they are compared as a whole and sent after the resource that they belong to

	// Secret says that each request is authorized by the peer's identity, and that only a client that is sent a
	// resource can read its content. Such a type is Named, so that there is a name to decide on, and neither Complete
	// nor Total.
	Secret bool
}

// types is the table of all known types.
var types = [...]Type{
	{URL: ClusterType, Short: "cds", Addition: 0, Removal: 2, Complete: true},
	{URL: EndpointType, Short: "eds", Addition: 1, Removal: 1, Named: true, Total: true, Live: true},
	{URL: ListenerType, Short: "lds", Addition: 2, Removal: 0, Complete: true, NamesClusters: true},
	{URL: RouteType, Short: "rds", Addition: 3, Removal: 1, Named: true, Total: true, NamesClusters: true, Divisible: true},
	{URL: VirtualHostType, Short: "vhds", Addition: 4, Removal: 1, Part: true},
	{URL: SecretType, Short: "sds", Addition: 5, Removal: 1, Named: true, Secret: true},
	{URL: ExtensionType, Short: "ecds", Addition: 6, Removal: 1, Named: true},
	{URL: NameTableType, Short: "nds", Addition: 6, Removal: 1, Live: true},
	{URL: ProxyConfigType, Short: "pcds", Addition: 6, Removal: 1},
}

// UnknownShort is the short name of all types that are not in the table.
const UnknownShort = "unknown"

// Removals is the number of removal passes; each Removal is less.
const Removals = 3

// TypeOf returns the type of a URL. A type that is not in the table is ordered after all others.
func TypeOf(url string) *Type {
	if t := find(url); t != nil {
		return t
	}
	return &Type{URL: url, Short: UnknownShort, Addition: len(types), Removal: 1}
}

func find(url string) *Type {
	for i := range types {
		if types[i].URL == url {
			return &types[i]
		}
	}
	return nil
}

// Known reports whether the type is in the table.
func (t *Type) Known() bool { return t.Short != UnknownShort }

// TypeURL returns a URL as a string, without an allocation if the URL is in the table.
func TypeURL(b []byte) string {
	for i := range types {
		if types[i].URL == string(b) {
			return types[i].URL
		}
	}
	return string(b)
}

// ShortType returns the short name of the type with that URL.
func ShortType(url string) string {
	if t := find(url); t != nil {
		return t.Short
	}
	return UnknownShort
}

// TypeURLOf returns the URL of a type by its short name, or "" if there is none.
func TypeURLOf(short string) string {
	for i := range types {
		if types[i].Short == short {
			return types[i].URL
		}
	}
	return ""
}

// TypeIndex returns the index of a type in ShortTypes.
func TypeIndex(url string) int {
	for i := range types {
		if types[i].URL == url {
			return i
		}
	}
	return len(types)
}

// ShortTypes returns every short name, in the order of the table; the last is UnknownShort.
func ShortTypes() []string {
	var list []string
	for _, t := range types {
		list = append(list, t.Short)
	}
	return append(list, UnknownShort)
}
