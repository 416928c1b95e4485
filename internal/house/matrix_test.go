// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	testName = regexp.MustCompile(`\b(Test|Fuzz)[A-Z0-9]\w*`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// TestMatricesNameTestsThatExist checks that what the matrices give as proof can be
// run: a test that was renamed or dropped must not stay behind as a claim.
func TestMatricesNameTestsThatExist(t *testing.T) {
	exist := make(map[string]bool)
	for _, f := range readSource(t) {
		for _, m := range testFunc.FindAllSubmatch(f.text, -1) {
			exist[string(m[1])] = true
		}
	}
	pages, err := filepath.Glob(filepath.Join(moduleRoot(t), "docs", "[rt][fs][c0-9]*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no matrices: %v, %v", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testName.FindAllString(string(text), -1) {
			if !exist[name] {
				t.Errorf("%s names %s, which is no test", filepath.Base(page), name)
			}
		}
	}
}
