package report

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
)

// What follows are the parts of SARIF 2.1.0 that are written, by the names of its schema.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string     `json:"id"`
		Name    string     `json:"name,omitempty"`
		Short   *sarifText `json:"shortDescription,omitempty"`
		HelpURI string     `json:"helpUri,omitempty"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID     string            `json:"ruleId"`
		RuleIndex  int               `json:"ruleIndex"`
		Level      string            `json:"level"`
		Message    sarifText         `json:"message"`
		Locations  []sarifLocation   `json:"locations"`
		Properties map[string]string `json:"properties,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// sarif returns the report as a log of SARIF with one run. The id of a rule is Istio's where Istio has one.
func (r Report) sarif() sarifLog {
	var rules []sarifRule
	results := make([]sarifResult, 0, len(r.Findings)+1)
	add := func(d diag.Diagnostic) {
		code := analysis.Describe(d.Code)
		i := slices.IndexFunc(rules, func(rule sarifRule) bool { return rule.ID == code.ID })
		if i < 0 {
			i = len(rules)
			rules = append(rules, sarifRule{ID: code.ID, Name: code.Name, Short: &sarifText{code.Name}, HelpURI: code.URL})
		}
		message := d.Message
		if d.Field != "" {
			message = d.Field + ": " + message
		}
		if d.Fix != "" {
			message += "; " + d.Fix
		}
		result := sarifResult{
			RuleID: code.ID, RuleIndex: i, Message: sarifText{message}, Locations: []sarifLocation{},
			Level: map[diag.Severity]string{diag.Error: "error", diag.Warning: "warning", diag.Info: "note"}[d.Severity],
		}
		if code.ID != d.Code && d.Code != "" {
			result.Properties = map[string]string{"code": d.Code}
		}
		var at sarifLocation
		if d.File != "" {
			at.Physical = &sarifPhysical{Artifact: sarifArtifact{fileURI(d.File)}}
			if d.Line > 0 {
				at.Physical.Region = &sarifRegion{d.Line, d.Column}
			}
		}
		if d.Object != "" {
			at.Logical = []sarifLogical{{Name: d.Object, Kind: "resource"}}
		}
		if at.Physical != nil || at.Logical != nil {
			result.Locations = append(result.Locations, at)
		}
		results = append(results, result)
	}
	for _, d := range r.Findings {
		add(d)
	}
	if r.Refusal != "" {
		add(diag.Diagnostic{Severity: diag.Error, Code: "Refused", Message: "a server would refuse to start: " + r.Refusal})
	}
	if rules == nil {
		rules = []sarifRule{}
	}
	return sarifLog{
		Schema: "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{Tool: sarifTool{sarifDriver{"pilot-discovery", r.Version, rules}}, ColumnKind: "unicodeCodePoints", Results: results}},
	}
}

// fileURI returns a file's name as a URI reference: relative to the working directory, unless the name is absolute.
func fileURI(name string) string {
	u := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
	} else if first, _, _ := strings.Cut(u.Path, "/"); strings.Contains(first, ":") {
		u.Path = "./" + u.Path // or it would be a scheme
	}
	return u.String()
}
