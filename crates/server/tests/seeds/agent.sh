# The agents that the older systems' requirements assume. The first argument says which one this is.

read -r turn
# The message comes before the histories, so its text is the first one.
text=${turn#*'"text":"'}
text=${text%%'"'*}
history=${turn#*'"history":['}
# `remembers` says how many messages it was told of in all, those of the context included.
[ "$1" = remembers ] || history=${history%%'],"context_history":'*}
messages=0
while [ "$history" != "${history#*'"messageId"'}" ]; do
    history=${history#*'"messageId"'}
    messages=$((messages + 1))
done

# end STATE TEXT
end() {
    printf '{"statusUpdate":{"status":{"state":"TASK_STATE_%s","message":{"parts":[{"text":"%s"}]}}}}\n' "$1" "$2"
}

# piece NUMBER TEXT: a piece of the reply's text; number 0 begins it.
piece() {
    if [ "$1" = 0 ]; then
        printf '{"artifactUpdate":{"artifact":{"name":"response","parts":[{"text":"%s"}]}}}\n' "$2"
    else
        printf '{"artifactUpdate":{"artifact":{"parts":[{"text":"%s"}]},"append":true}}\n' "$2"
    fi
}

case $1-$text in
# Repeats the text; in four chunks when told `stream`.
echo-stream)
    for n in 0 1 2 3; do
        piece $n "chunk $n "
        sleep 0.04
    done
    ;;
echo-*) end COMPLETED "$text" ;;
# Works until it is canceled, or for a second when told `short`.
slow-short)
    sleep 1
    end COMPLETED done
    ;;
slow-*) exec sleep 600 ;;
# Answers with a direct message.
direct-*) printf '{"message":{"messageId":"reply","role":"ROLE_AGENT","parts":[{"text":"%s"}]}}\n' "$text" ;;
fails-*) end FAILED "no luck" ;;
rejects-*) end REJECTED "not me" ;;
# Two ways to break the protocol: a line that is no event, and an event after the end.
breaks-*) echo "no event" ;;
strays-*)
    end COMPLETED done
    end COMPLETED "not yet"
    ;;
# Asks, and repeats the answer.
asks-*) if [ $messages = 1 ]; then end INPUT_REQUIRED "which one?"; else end COMPLETED "$text"; fi ;;
# Asks, and answers with a text that has a name and no id.
names-*)
    if [ $messages = 1 ]; then
        end INPUT_REQUIRED "which one?"
    else
        printf '{"artifactUpdate":{"artifact":{"name":"echo","parts":[{"text":"%s"}]},"lastChunk":true}}\n' "$text"
    fi
    ;;
# turns HOW WORD [asks]: says two pieces of an artifact, of one that has a name when HOW is `named`, and an id as well when
# it is `id`. With `more` it only adds to the artifact of the turn before. What comes with the second piece keeps it apart.
turns-*)
    set -- $text
    case $1 in
    named) artifact='"name":"report",' ;;
    id) artifact="\"artifactId\":\"r-$2\",\"name\":\"report\"," ;;
    *) artifact= ;;
    esac
    [ $1 = more ] ||
        printf '{"artifactUpdate":{"artifact":{%s"parts":[{"text":"%s-a "}]}}}\n' "$artifact" $2
    [ $1 != more ] || same='"artifactId":"r-ONE",'
    printf '{"artifactUpdate":{"artifact":{%s"parts":[{"text":"%s-b"}]},"append":true,"lastChunk":true,"metadata":{"n":2}}}\n' \
        "$same" $2
    [ $# = 2 ] || end INPUT_REQUIRED "more?"
    ;;
# Says more than a status message holds.
talks-*)
    for n in 0 1 2 3 4 5 6 7 8 9; do
        piece $n "$(head -c 10000 /dev/zero | tr '\0' $n)"
    done
    ;;
# Makes a file and data beside its text.
makes-*)
    piece 0 "here "
    piece 1 "it is"
    printf '{"artifactUpdate":{"artifact":{"name":"out.txt","parts":[%s,%s]},"lastChunk":true}}\n' \
        '{"raw":"aGn/","filename":"out.txt"}' '{"data":{"n":1}}'
    end COMPLETED "here it is"
    ;;
# Says how many messages of the task it was given.
remembers-*) end COMPLETED $messages ;;
esac
