package limits

import "time"

// Limits are the bounds in force. Sizes are bytes and rates are per second unless a field says otherwise. A zero is not
// "unlimited": start from Default.
type Limits struct {
	// Connections and streams.
	HandshakeTimeout  time.Duration // TLS, the HTTP/2 preface and settings, together
	ConnectionIdle    time.Duration // how long a connection stays without any stream
	HeaderListSize    uint32        // all headers of one gRPC request
	StreamsPerConn    uint32        // concurrent gRPC streams of one connection
	RecvMessage       int           // one gRPC message from a client
	Streams           int           // streams served at a time; more wait
	RequestsPerSecond float64       // discovery requests of one stream, ACKs included
	RequestsBurst     int           // discovery requests of one stream at once
	// a Send may take SendGrace plus its size over SendRate, then the connection is closed
	SendGrace   time.Duration
	SendRate    int // bytes a second that a client has to take at least
	Generations int // concurrent translations, for each CPU

	// What peers on other hosts that prove no identity may hold, those of one address together.
	ConnectionsPerSource int // connections, whatever they prove later
	StreamsPerSource     int // streams; more are refused
	NameBytesPerSource   int // memory of the resource names that they subscribe to

	// Departure is how long a connected proxy keeps its inbound configuration after its workload has gone: others may
	// still send it requests.
	Departure time.Duration

	// What a discovery request may hold. Nodes have bounds of their own, in package node.
	NamesPerRequest int // resource names in one request, subscribed and unsubscribed
	NamesPerStream  int // resource names that one stream subscribes to, all types
	NameLength      int // one resource name

	// Tombstones bounds the removed virtual hosts of one stream that an Envoy keeps, at some 2 kB each. Beyond them its
	// route configurations go whole.
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
	DebugAnswers int           // made or not read yet, at a time; more wait
	DebugWait    time.Duration // for which a request for a page waits, before it is refused

	// Webhooks of an API server. Whoever reaches the port may call them.
	WebhookConns  int           // connections from one address that is not on this host; more are closed
	WebhookBody   int64         // the body of one request
	WebhookBodies int64         // all bodies together, but for the large ones, which have twice WebhookBody
	WebhookRead   time.Duration // from the headers of a request to the end of its body
	Reviews       int           // concurrent reviews; more wait
	ReviewedBytes int64         // what is reviewed at once; what is larger is reviewed alone
	ReviewWait    time.Duration // for which a review waits, before it gets 429

	// User-written regular expressions.
	RegexBytes        int // one expression
	RegexInstructions int // one compiled program
	RegexPerObject    int // all programs of one object

	// One configuration object of any source. Istio's own CRDs have no longer lists either, where they bound them.
	ListEntries int // entries of one list: hosts, routes, subsets, ports, servers
	// bytes of what a VirtualService and its delegates say for each of its hosts, or a DestinationRule for each of its
	// subsets, all together
	RepeatedText  int
	EntryClusters int // hosts of a ServiceEntry, for each of its ports: every proxy has a cluster for each
	// clusters of one host: its ports, times one and the subsets that DestinationRules define; see Subsets
	HostClusters   int
	ReviewObject   int // JSON of an object to check before it is stored; an API server stores 1.5 MiB
	EntryEndpoints int // endpoints and addresses of a ServiceEntry, for each of its ports and hosts, all together

	// The configuration directory.
	FileSize   int64 // one file, which may hold many objects; an API server takes 1.5 MiB for one
	Files      int   // regular files under the directory
	FilesTotal int64 // all files together
	FileDocs   int   // YAML documents in one file
	YAMLDepth  int   // levels of nested values in one document
	MeshConfig int64 // the mesh configuration file

	// Secrets of a namespace that are watched one by one, and ConfigMaps. Where more are wanted, all that the namespace
	// has are read by one watch.
	WatchedNames int

	// The keys of token issuers, which are fetched.
	KeySet          int64 // the body of an answer
	KeySetHeader    int64 // its headers
	KeySetRedirects int   // those that are followed
	KeySets         int   // key sets that the policies of one namespace need
	KeySetBytes     int   // the public keys in all of them

	// Questions to servers elsewhere: about names, keys of token issuers, and bundles of trust domains.
	Questions     int           // open at a time, of each sort
	FirstQuestion time.Duration // the first about a name; a later one may take longer

	// Reviews of tokens by the API server of one cluster.
	TokenReviews  int           // open at a time
	TokenRechecks int           // open at a time, of tokens that were verified without a review
	TokenReview   time.Duration // one review
	TokenFailures float64       // reviews of tokens that anybody could have made, and that fail
	TokensKept    int           // tokens of all clusters whose review is remembered

	// Certificates that are issued.
	Requesters    int // callers whose rates are remembered; beyond them the least recent one begins anew
	Signings      int // made at a time, for each CPU; more wait
	SignerWaiting int // asked of signers of Kubernetes at a time, which is mostly waiting

	// Sources of configuration that other control planes are.
	ConfigResponse int           // one response: all objects of one kind
	ConfigObject   int           // one object
	ConfigAnswer   time.Duration // from the first request of a stream to an answer
}

// The time between a failed request to an API server and the next try, at first and at most. It doubles with each
// failure.
const (
	MinBackoff = time.Second
	MaxBackoff = time.Minute
)

// Default returns the limits of a server that nobody has tuned.
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
		SendRate:          64 << 10,
		Generations:       2,

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

// Subsets returns how many subsets a host of some ports may have: each port has a cluster of its own, and one for each
// subset.
func Subsets(hostClusters, ports int) int { return max(hostClusters/max(ports, 1)-1, 0) }
