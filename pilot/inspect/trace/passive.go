package trace

// passiveHTTP are the types of the HTTP filters that never answer a request, and change nothing by which it is routed.
var passiveHTTP = []string{
	"type.googleapis.com/io.istio.http.peer_metadata.Config",
	"type.googleapis.com/istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
	"type.googleapis.com/stats.PluginConfig",
	prefixHTTP + "alternate_protocols_cache.v3.FilterConfig",
	prefixHTTP + "bandwidth_limit.v3.BandwidthLimit",
	prefixHTTP + "compressor.v3.Compressor",
	prefixHTTP + "decompressor.v3.Decompressor",
	prefixHTTP + "dynamic_forward_proxy.v3.FilterConfig", // the cluster says that it resolves the host
	prefixHTTP + "grpc_http1_bridge.v3.Config",
	prefixHTTP + "grpc_stats.v3.FilterConfig",
	prefixHTTP + "grpc_web.v3.GrpcWeb",
	prefixHTTP + "on_demand.v3.OnDemand",
	prefixHTTP + "original_src.v3.OriginalSrc",
	prefixHTTP + "router.v3.Router", // its decision comes after all filters
	prefixHTTP + "set_metadata.v3.Config",
	prefixHTTP + "tap.v3.Tap",
}

// passiveNetwork are the types of the network filters that never close a connection, and do not decide where it goes.
var passiveNetwork = []string{
	"type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange",
	"type.googleapis.com/stats.PluginConfig",
	prefixNetwork + "kafka_broker.v3.KafkaBroker",
	prefixNetwork + "mongo_proxy.v3.MongoProxy",
	prefixNetwork + "mysql_proxy.v3.MySQLProxy",
	prefixNetwork + "postgres_proxy.v3alpha.PostgresProxy",
	prefixNetwork + "sni_dynamic_forward_proxy.v3.FilterConfig", // the cluster says that it resolves the host
	prefixNetwork + "zookeeper_proxy.v3.ZooKeeperProxy",
}
