package mesh

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// checkFormats checks the texts in which proxies replace commands: a proxy rejects a whole listener if a text is wrong.
// It removes a wrong access log format of a provider, so that the log has the default format. It returns the indexes of
// the providers that cannot be used.
func (d *document) checkFormats(c *Config) (broken []int) {
	d.format("accessLogFormat", c.accessLogTexts(), substitution.Log)
	for i, p := range c.GetExtensionProviders() {
		at := fmt.Sprintf("extensionProviders[%d]", i)
		header := func(field, value string) {
			if !d.format(at+field, map[string]string{"": value}, substitution.Header) {
				broken = append(broken, i)
			}
		}
		headers := func(field string, list []*meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader) {
			for j, h := range list {
				header(fmt.Sprintf("%s[%d].value", field, j), h.GetValue())
			}
		}
		switch p := p.GetProvider().(type) {
		case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
			f := p.EnvoyFileAccessLog.GetLogFormat()
			if !d.format(at+".envoyFileAccessLog.logFormat", formatTexts(f.GetText(), f.GetLabels()), substitution.Log) {
				p.EnvoyFileAccessLog.LogFormat = nil
			}
		case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
			f := p.EnvoyOtelAls.GetLogFormat()
			if !d.format(at+".envoyOtelAls.logFormat", formatTexts(f.GetText(), f.GetLabels()), substitution.Log) {
				p.EnvoyOtelAls.LogFormat = nil
			}
		case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp:
			add := p.EnvoyExtAuthzHttp.GetIncludeAdditionalHeadersInCheck()
			for _, name := range slices.Sorted(maps.Keys(add)) {
				header(".envoyExtAuthzHttp.includeAdditionalHeadersInCheck["+name+"]", add[name])
			}
		case *meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin:
			headers(".zipkin.headers", p.Zipkin.GetHeaders())
		case *meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry:
			headers(".opentelemetry.http.headers", p.Opentelemetry.GetHttp().GetHeaders())
			headers(".opentelemetry.grpc.initialMetadata", p.Opentelemetry.GetGrpc().GetInitialMetadata())
		}
	}
	return broken
}

// format checks texts, keyed by their paths below a field, and reports whether all are valid.
func (d *document) format(field string, texts map[string]string, place substitution.Place) bool {
	ok := true
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		at := field
		if path != "" && path[0] != '.' && path[0] != '[' {
			at += "."
		}
		at += path
		why, fix := place.Fault(texts[path])
		switch recent := substitution.Recent(texts[path]); {
		case why != "":
			d.wrong(at, why+": proxies reject listeners with it", fix)
			ok = false
		case recent != "":
			instead := "- for it"
			if place == substitution.Log {
				instead = "the default format"
			}
			d.report(diag.Warning, "InvalidValue", at, d.nearest(at),
				fmt.Sprintf("proxies before Envoy 1.40 do not have the command %s: they write %s", recent, instead), "upgrade them, or leave it out")
		}
	}
	return ok
}

// accessLogTexts returns the texts of accessLogFormat by their paths below it.
func (c *Config) accessLogTexts() map[string]string {
	if c.GetAccessLogEncoding() != meshv1alpha1.MeshConfig_JSON {
		return map[string]string{"": c.GetAccessLogFormat()}
	}
	labels := &structpb.Struct{}
	if labels.UnmarshalJSON([]byte(c.GetAccessLogFormat())) != nil {
		return nil
	}
	return texts("", structpb.NewStructValue(labels))
}

// formatTexts returns the texts of a provider's format by their paths below it.
func formatTexts(text string, labels *structpb.Struct) map[string]string {
	all := texts("labels", structpb.NewStructValue(labels))
	all["text"] = text
	return all
}

// texts returns the texts of a value by their paths.
func texts(path string, v *structpb.Value) map[string]string {
	out := map[string]string{}
	add := func(path string, v *structpb.Value) { maps.Copy(out, texts(path, v)) }
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		out[path] = k.StringValue
	case *structpb.Value_StructValue:
		for key, value := range k.StructValue.GetFields() {
			add(path+"."+key, value)
		}
	case *structpb.Value_ListValue:
		for i, value := range k.ListValue.GetValues() {
			add(fmt.Sprintf("%s[%d]", path, i), value)
		}
	}
	return out
}
