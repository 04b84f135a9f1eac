package limits

import "time"

// Limits are the bounds in force. Sizes are bytes and rates are per second unless a field says otherwise. A zero is not
// "unlimited": start from Default.
type Limits struct {
	// Connections and streams.
	HandshakeTimeout  time.Duration // for TLS, the HTTP/2 preface and the settings together
	ConnectionIdle    time.Duration // lifetime of a connection without streams
	HeaderListSize    uint32        // all headers of one gRPC request
	StreamsPerConn    uint32        // concurrent gRPC streams of one connection
	RecvMessage       int           // size of one gRPC message from a client
	Streams           int           // concurrent streams; more wait
	RequestsPerSecond float64       // discovery requests of one stream, ACKs included
	RequestsBurst     int           // burst of RequestsPerSecond
	SendGrace         time.Duration // how long a client that is being sent a message may take no bytes; then the connection is closed
	Generations       int           // concurrent translations, for each CPU

	// Streams that connect at once.
	FirstRequests      int           // streams whose first requests are read at a time, for each CPU; more wait
	FirstRequestsTime  time.Duration // time in which the first requests of one stream are read
	FirstBytes         int           // bytes of the first configurations that are sent at a time; more streams wait
	FirstConfiguration time.Duration // how long a stream is one of these if its client does not acknowledge everything before
	MemoryWait         time.Duration // how long a stream waits for memory before it is refused

	// Bounds of all peers at one address, on another host, that prove no identity.
	ConnectionsPerSource int // connections, whatever their peers prove later
	StreamsPerSource     int // streams; more are refused
	NameBytesPerSource   int // bytes of the resource names that they subscribe to

	// Departure is how long a connected proxy keeps its inbound configuration after its workload was removed, because
	// clients may still send it requests.
	Departure time.Duration

	// Bounds of a discovery request. Package node bounds the node in it.
	NamesPerRequest int // resource names in one request, subscribed and unsubscribed
	NamesPerStream  int // resource names that one stream subscribes to, all types
	NameLength      int // one resource name

	// Tombstones bounds the removed virtual hosts of one stream that an Envoy keeps, which use about 2 kB each. Beyond
	// them its route configurations are sent whole.
	Tombstones int

	// HTTP servers: debug, readiness, metrics.
	HTTPReadHeader time.Duration // from the connection's first byte to the end of the headers
	HTTPRead       time.Duration // the whole request
	HTTPWrite      time.Duration // the whole response
	HTTPIdle       time.Duration // between two requests of one connection
	HTTPHeader     int           // all headers of one request
	HTTPBody       int64         // the body of one request
	DebugRequests  int           // concurrent requests of /debug; more get 429

	// Answers with debug pages over xDS.
	DebugAnswers int           // answers that are being made or not read yet; more wait
	DebugWait    time.Duration // how long a request for a page waits before it is refused

	// Webhooks of an API server. Any client that reaches the port may call them.
	WebhookConns  int           // connections from one address that is not on this host; more are closed
	WebhookBody   int64         // the body of one request
	WebhookBodies int64         // all bodies together, except large ones, which have twice WebhookBody
	WebhookRead   time.Duration // from the headers of a request to the end of its body
	Reviews       int           // concurrent reviews; more wait
	ReviewedBytes int64         // bytes under review; a larger request is reviewed alone
	ReviewWait    time.Duration // how long a review waits before it is refused with 429

	// User-written regular expressions.
	RegexBytes        int // one expression
	RegexInstructions int // one compiled program
	RegexPerObject    int // all programs of one object

	// One configuration object of any source. Istio's own CRDs allow no longer lists either, where they bound them.
	ListEntries int // entries of one list: hosts, routes, subsets, ports, servers
	// RepeatedText bounds the bytes that a VirtualService and its delegates have for each of its hosts, or a
	// DestinationRule for each of its subsets, in total.
	RepeatedText  int
	EntryClusters int // hosts of a ServiceEntry times its ports: every proxy has a cluster for each
	// HostClusters bounds the clusters of one host: its ports, times one plus the subsets that DestinationRules define;
	// see Subsets.
	HostClusters   int
	ReviewObject   int // JSON of an object to check before it is stored; an API server stores 1.5 MiB
	EntryEndpoints int // endpoints and addresses of a ServiceEntry, times its ports and hosts

	// The configuration directory.
	FileSize   int64 // one file, which may hold many objects; an API server accepts 1.5 MiB for one
	Files      int   // regular files under the directory
	FilesTotal int64 // all files together
	FileDocs   int   // YAML documents in one file
	YAMLDepth  int   // levels of nested values in one document
	MeshConfig int64 // the mesh configuration file

	// WatchedNames bounds the Secrets, and the ConfigMaps, of a namespace that are watched one by one. If more are
	// wanted, one watch reads all of the namespace.
	WatchedNames int

	// Fetched keys of token issuers.
	KeySet          int64 // body of a response
	KeySetHeader    int64 // headers of a response
	KeySetRedirects int   // redirects that are followed
	KeySets         int   // key sets that the policies of one namespace need
	KeySetBytes     int   // the public keys in all of them

	// Requests to other servers: about names, keys of token issuers, and bundles of trust domains.
	Questions     int           // concurrent requests of each kind
	FirstQuestion time.Duration // timeout of the first request about a name; a later one may take longer

	// TokenReviews by the API server of one cluster.
	TokenReviews  int           // concurrent reviews
	TokenRechecks int           // concurrent reviews of tokens that were verified without one
	TokenReview   time.Duration // timeout of one review
	TokenFailures float64       // failed reviews of unverified tokens, which any client can forge
	TokensKept    int           // cached reviews of all clusters

	// Issued certificates.
	Requesters    int // callers with a rate limit in memory; the least recent one is dropped
	Signings      int // concurrent signatures, for each CPU; more wait
	SignerWaiting int // concurrent requests to signers of Kubernetes, which mostly wait

	// Other control planes as sources of configuration.
	ConfigResponse int           // one response: all objects of one kind
	ConfigObject   int           // one object
	ConfigAnswer   time.Duration // from the first request of a stream to a response
}

// The backoff after a failed request to an API server, initial and maximum. It doubles with each failure.
const (
	MinBackoff = time.Second
	MaxBackoff = time.Minute
)

// Default returns the default limits.
func Default() Limits {
	return Limits{
		HandshakeTimeout:  10 * time.Second,
		ConnectionIdle:    5 * time.Minute,
		HeaderListSize:    16 << 10,
		StreamsPerConn:    8,
		RecvMessage:       4 << 20,
		Streams:           12000,
		RequestsPerSecond: 50,
		RequestsBurst:     2000,
		SendGrace:         10 * time.Second,
		Generations:       2,

		FirstRequests:      64,
		FirstRequestsTime:  time.Second,
		FirstConfiguration: 10 * time.Second,
		FirstBytes:         512 << 20,
		MemoryWait:         30 * time.Second,

		ConnectionsPerSource: 1000,
		StreamsPerSource:     100,
		NameBytesPerSource:   16 << 20,

		Departure: 30 * time.Second,

		NamesPerRequest: 20000,
		NamesPerStream:  50000,
		NameLength:      512,

		Tombstones: 4096,

		HTTPReadHeader: 5 * time.Second,
		HTTPRead:       15 * time.Second,
		HTTPWrite:      60 * time.Second,
		HTTPIdle:       60 * time.Second,
		HTTPHeader:     16 << 10,
		HTTPBody:       1 << 20,
		DebugRequests:  2,

		DebugAnswers: 8,
		DebugWait:    5 * time.Second,

		WebhookConns:  64,
		WebhookBody:   6 << 20,
		WebhookBodies: 16 << 20,
		WebhookRead:   5 * time.Second,
		Reviews:       8,
		ReviewedBytes: 512 << 10,
		ReviewWait:    5 * time.Second,

		RegexBytes:        1024,
		RegexInstructions: 2000,
		RegexPerObject:    50000,

		ListEntries:    4096,
		RepeatedText:   16 << 20,
		EntryClusters:  1 << 14,
		HostClusters:   1 << 14,
		EntryEndpoints: 1 << 16,
		ReviewObject:   2 << 20,

		FileSize:   16 << 20,
		Files:      10000,
		FilesTotal: 256 << 20,
		FileDocs:   50000,
		YAMLDepth:  100,
		MeshConfig: 1 << 20,

		WatchedNames: 64,

		KeySet:          1 << 20,
		KeySetHeader:    64 << 10,
		KeySetRedirects: 2,
		KeySets:         1000,
		KeySetBytes:     4 << 20,

		Questions:     32,
		FirstQuestion: 5 * time.Second,

		TokenReviews:  50,
		TokenRechecks: 4,
		TokenReview:   5 * time.Second,
		TokenFailures: 5,
		TokensKept:    10000,

		Requesters:    50000,
		Signings:      4,
		SignerWaiting: 100,

		ConfigResponse: 64 << 20,
		ConfigObject:   1 << 20,
		ConfigAnswer:   30 * time.Second,
	}
}

// Subsets returns how many subsets a host with some ports may have: each port has one cluster, and one for each subset.
func Subsets(hostClusters, ports int) int { return max(hostClusters/max(ports, 1)-1, 0) }
