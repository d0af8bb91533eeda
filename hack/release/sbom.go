// Copyright The lease-coordinator Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the bill of materials of what the linker put into the binary, in CycloneDX's JSON, beside it.
func writeSBOM(binary, version string) error {
	cmd := exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp", "-version="+version, binary)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("making the bill of materials of %s: %w\n%s", binary, err, &stderr)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(output), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return fmt.Errorf("reading the bill of materials of %s: %w", binary, err)
	}
	// The tool's own checksum differs from one machine to the next; its version says as much.
	if bom.Metadata != nil && bom.Metadata.Tools != nil && bom.Metadata.Tools.Tools != nil {
		for i := range *bom.Metadata.Tools.Tools {
			(*bom.Metadata.Tools.Tools)[i].Hashes = nil
		}
	}
	file, err := os.Create(binary + sbomSuffix)
	if err != nil {
		return fmt.Errorf("writing the bill of materials of %s: %w", binary, err)
	}
	if err := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(&bom); err != nil {
		_ = file.Close()
		return fmt.Errorf("writing the bill of materials of %s: %w", binary, err)
	}
	return file.Close()
}
