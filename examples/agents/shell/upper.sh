# Upper case: the texts of the message, in capital letters. All that is printed is the answer.
# Without a JSON tool at hand the strings after "text" are cut out; quotes inside them stay escaped.
sed 's/,"history":.*//' | grep -o '"text":"\([^"\\]\|\\.\)*"' | sed 's/^"text":"//; s/"$//' | tr '[:lower:]' '[:upper:]'
