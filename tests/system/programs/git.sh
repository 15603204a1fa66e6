# git: clones, pushes and fetches by its daemon and by pipes.
#: deb=git
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git config --global init.defaultBranch main
git config --global safe.directory '*'
git init -q one
(cd one && for i in $(seq 12); do seq 1 $((i * 3000)) >file$i; git add .; git commit -q -m "number $i"; done; git rev-parse HEAD; git log --oneline | sum; git diff HEAD~5 | sum)
git clone -q --bare one base/bare.git 2>&1 || { mkdir -p base; git clone -q --bare one base/bare.git; }
git daemon --reuseaddr --listen=127.0.0.1 --port="$PORT" --base-path="$D/base" --export-all --enable=receive-pack "$D/base" >log 2>&1 &
await connects "$PORT"
for i in 1 2 3; do git clone -q "git://127.0.0.1:$PORT/bare.git" copy$i; (cd copy$i && git rev-parse HEAD && git fsck 2>&1 | grep -v -e '^Checking' -e notice); done
(cd copy1 && seq 1 70000 >new && git add new && git commit -q -m new && git push -q origin main && git rev-parse HEAD)
(cd copy2 && git pull -q && git rev-parse HEAD && git archive HEAD | tar t | sum && git gc -q && git fsck 2>&1 | grep -v -e '^Checking' -e notice)
git clone -q --no-local "file://$D/base/bare.git" copy4
(cd copy4 && git bundle create -q ../b main && git bundle verify -q ../b 2>&1 | tail -1)
