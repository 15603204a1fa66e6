module go-abi

go 1.22
